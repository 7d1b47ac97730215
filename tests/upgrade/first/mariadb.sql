SET SQL_MODE = 'NO_AUTO_VALUE_ON_ZERO';
/*M!999999\- enable the sandbox mode */ 
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_audit` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `at` datetime(6) NOT NULL DEFAULT utc_timestamp(6),
  `actor` varchar(255) NOT NULL,
  `action` varchar(255) NOT NULL,
  `subject` varchar(255) NOT NULL,
  `detail` text DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_facts` (
  `event_id` binary(16) NOT NULL,
  `topic` varchar(255) NOT NULL,
  `event_type` varchar(128) NOT NULL,
  `aggregate_type` varchar(128) NOT NULL,
  `aggregate_id` varchar(255) NOT NULL,
  `version` bigint(20) NOT NULL,
  `schema_version` int(11) NOT NULL DEFAULT 1,
  `payload` longblob NOT NULL,
  `content_type` varchar(255) NOT NULL DEFAULT 'application/json',
  `tenant_id` varchar(1024) NOT NULL DEFAULT '',
  `correlation_id` varchar(1024) DEFAULT NULL,
  `causation_id` varchar(1024) DEFAULT NULL,
  `attributes` mediumtext DEFAULT NULL,
  `occurred_at` datetime(6) NOT NULL,
  `created_at` datetime(6) NOT NULL DEFAULT utc_timestamp(6),
  `deliver_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`event_id`),
  UNIQUE KEY `aggregate_type` (`aggregate_type`,`aggregate_id`,`version`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `postroad_facts` VALUES (0x01A1E179F6B871FCB018F3E0F0B8E8E8,'office.parcel.events','parcel.posted','parcel','moving',3,1,0x7B2270617263656C223A226D6F76696E67222C226E6F7465223A22227D,'application/json','','01a1e179-f6b8-71fc-b018-f3e0f0b8e8e8',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.048498','2026-11-15 23:10:29.050477',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E179F6BD76EEBFB6A7620F770B4A,'office.parcel.events','parcel.posted','parcel','moving',4,1,0x7B2270617263656C223A226D6F76696E67222C226E6F7465223A22227D,'application/json','','01a1e179-f6bd-76ee-bfb6-a7620f770b4a',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.053538','2026-11-15 23:10:29.054578',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E179F6C07D0D853E0C0A8D6BA160,'office.parcel.events','parcel.posted','parcel','waiting',3,1,0x7B2270617263656C223A2277616974696E67222C226E6F7465223A22227D,'application/json','','01a1e179-f6c0-7d0d-853e-0c0a8d6ba160',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.056128','2026-11-15 23:10:29.056957',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E179F6C27CA1BD78890D19B2677E,'office.parcel.events','parcel.posted','parcel','waiting',4,1,0x7B2270617263656C223A2277616974696E67222C226E6F7465223A22227D,'application/json','','01a1e179-f6c2-7ca1-bd78-890d19b2677e',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.058308','2026-11-15 23:10:29.059006',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E179F6C47FC9B002F9403E9B542E,'office.parcel.events','parcel.posted','parcel','worn',3,1,0x7B2270617263656C223A22776F726E222C226E6F7465223A22227D,'application/json','','01a1e179-f6c4-7fc9-b002-f9403e9b542e',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.060252','2026-11-15 23:10:29.060817',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E179F6C57589805608962A2407C1,'office.parcel.events','parcel.posted','parcel','worn',4,1,0x7B2270617263656C223A22776F726E222C226E6F7465223A22227D,'application/json','','01a1e179-f6c5-7589-8056-08962a2407c1',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.061977','2026-11-15 23:10:29.062518',NULL);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_facts_delivery` (
  `event_id` binary(16) NOT NULL,
  `version` bigint(20) NOT NULL,
  `ordering_key` varchar(520) DEFAULT NULL,
  `shard` smallint(6) DEFAULT NULL,
  `state` varchar(8) NOT NULL DEFAULT 'NEW',
  `attempts` int(11) NOT NULL DEFAULT 0,
  `next_attempt_at` datetime(6) DEFAULT NULL,
  `last_error` text DEFAULT NULL,
  `published_at` datetime(6) DEFAULT NULL,
  `unsent_shard` smallint(6) GENERATED ALWAYS AS (if(`state` in ('SENT','SKIPPED'),NULL,coalesce(`shard`,-1))) VIRTUAL,
  PRIMARY KEY (`event_id`),
  KEY `postroad_facts_unsent` (`unsent_shard`,`ordering_key`,`version`),
  KEY `postroad_facts_sent` (`state`,`published_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E179F6B871FCB018F3E0F0B8E8E8,3,'parcel/moving',111,'SENT',0,NULL,NULL,'2000-01-01 00:00:00.000000',NULL);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E179F6BD76EEBFB6A7620F770B4A,4,'parcel/moving',111,'NEW',0,NULL,NULL,NULL,111);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E179F6C07D0D853E0C0A8D6BA160,3,'parcel/waiting',165,'RETRY',1,'2000-01-01 00:00:00.000000','no',NULL,165);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E179F6C27CA1BD78890D19B2677E,4,'parcel/waiting',165,'NEW',0,NULL,NULL,NULL,165);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E179F6C47FC9B002F9403E9B542E,3,'parcel/worn',255,'FAILED',5,'2000-01-01 00:00:00.000000','no',NULL,255);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E179F6C57589805608962A2407C1,4,'parcel/worn',255,'NEW',0,NULL,NULL,NULL,255);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_handler` (
  `consumer_group` varchar(64) NOT NULL,
  `event_type` varchar(128) NOT NULL,
  `first_seen` datetime(6) NOT NULL,
  `last_seen` datetime(6) NOT NULL,
  PRIMARY KEY (`consumer_group`,`event_type`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_inbox` (
  `consumer_group` varchar(64) NOT NULL,
  `event_id` binary(16) NOT NULL,
  `tenant_id` varchar(255) NOT NULL DEFAULT '',
  `event_type` varchar(128) NOT NULL,
  `topic` varchar(255) NOT NULL DEFAULT '',
  `ordering_key` varchar(520) DEFAULT NULL,
  `version` bigint(20) NOT NULL DEFAULT 0,
  `status` smallint(6) NOT NULL,
  `locked_by` varchar(255) DEFAULT NULL,
  `locked_until` datetime(6) DEFAULT NULL,
  `epoch` bigint(20) NOT NULL DEFAULT 0,
  `next_retry_at` datetime(6) DEFAULT NULL,
  `retry_count` int(11) NOT NULL DEFAULT 0,
  `error_msg` varchar(256) DEFAULT NULL,
  `received_at` datetime(6) NOT NULL DEFAULT utc_timestamp(6),
  `processed_at` datetime(6) DEFAULT NULL,
  `waiting_key` varchar(520) DEFAULT NULL,
  `message` longblob DEFAULT NULL,
  PRIMARY KEY (`consumer_group`,`event_id`),
  KEY `postroad_inbox_waiting` (`consumer_group`,`waiting_key`),
  KEY `postroad_inbox_unsettled` (`status`,`consumer_group`,`next_retry_at`),
  KEY `postroad_inbox_processed` (`status`,`processed_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_migration` (
  `name` varchar(128) NOT NULL,
  `target` varchar(128) NOT NULL,
  `applied_at` datetime(6) NOT NULL,
  PRIMARY KEY (`name`,`target`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `postroad_migration` VALUES ('0001_core','','2026-11-15 23:10:28.982358');
INSERT INTO `postroad_migration` VALUES ('0002_outbox_append_only','postroad_facts','2026-11-15 23:10:28.988923');
INSERT INTO `postroad_migration` VALUES ('0002_outbox_in_row','postroad_outbox','2026-11-15 23:10:28.992539');
INSERT INTO `postroad_migration` VALUES ('0003_outbox_routines','postroad_facts','2026-11-15 23:10:29.021143');
INSERT INTO `postroad_migration` VALUES ('0003_outbox_routines','postroad_outbox','2026-11-15 23:10:29.007398');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_outbox` (
  `event_id` binary(16) NOT NULL,
  `topic` varchar(255) NOT NULL,
  `event_type` varchar(128) NOT NULL,
  `aggregate_type` varchar(128) NOT NULL,
  `aggregate_id` varchar(255) NOT NULL,
  `version` bigint(20) NOT NULL,
  `schema_version` int(11) NOT NULL DEFAULT 1,
  `payload` longblob NOT NULL,
  `content_type` varchar(255) NOT NULL DEFAULT 'application/json',
  `tenant_id` varchar(1024) NOT NULL DEFAULT '',
  `correlation_id` varchar(1024) DEFAULT NULL,
  `causation_id` varchar(1024) DEFAULT NULL,
  `attributes` mediumtext DEFAULT NULL,
  `occurred_at` datetime(6) NOT NULL,
  `created_at` datetime(6) NOT NULL DEFAULT utc_timestamp(6),
  `deliver_at` datetime(6) DEFAULT NULL,
  `ordering_key` varchar(520) DEFAULT NULL,
  `shard` smallint(6) DEFAULT NULL,
  `state` varchar(8) NOT NULL DEFAULT 'NEW',
  `attempts` int(11) NOT NULL DEFAULT 0,
  `next_attempt_at` datetime(6) DEFAULT NULL,
  `last_error` text DEFAULT NULL,
  `published_at` datetime(6) DEFAULT NULL,
  `unsent_shard` smallint(6) GENERATED ALWAYS AS (if(`state` in ('SENT','SKIPPED'),NULL,coalesce(`shard`,-1))) VIRTUAL,
  PRIMARY KEY (`event_id`),
  UNIQUE KEY `aggregate_type` (`aggregate_type`,`aggregate_id`,`version`),
  KEY `postroad_outbox_unsent` (`unsent_shard`,`ordering_key`,`version`),
  KEY `postroad_outbox_sent` (`state`,`published_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `postroad_outbox` VALUES (0x01A1E179F69F7676AF0A4E9464B00A93,'office.parcel.events','parcel.posted','parcel','moving',1,1,0x7B2270617263656C223A226D6F76696E67222C226E6F7465223A22227D,'application/json','','01a1e179-f69f-7676-af0a-4e9464b00a93',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.023310','2026-11-15 23:10:29.025232',NULL,'parcel/moving',111,'SENT',0,NULL,NULL,'2000-01-01 00:00:00.000000',NULL);
INSERT INTO `postroad_outbox` VALUES (0x01A1E179F6A2785B8E9A72F9F472E66E,'office.parcel.events','parcel.posted','parcel','moving',2,1,0x7B2270617263656C223A226D6F76696E67222C226E6F7465223A22227D,'application/json','','01a1e179-f6a2-785b-8e9a-72f9f472e66e',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.026775','2026-11-15 23:10:29.027731',NULL,'parcel/moving',111,'NEW',0,NULL,NULL,NULL,111);
INSERT INTO `postroad_outbox` VALUES (0x01A1E179F6A5705797B2E9EEE7B9CCC3,'office.parcel.events','parcel.posted','parcel','waiting',1,1,0x7B2270617263656C223A2277616974696E67222C226E6F7465223A22227D,'application/json','','01a1e179-f6a5-7057-97b2-e9eee7b9ccc3',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.029024','2026-11-15 23:10:29.029787',NULL,'parcel/waiting',165,'RETRY',1,'2000-01-01 00:00:00.000000','no',NULL,165);
INSERT INTO `postroad_outbox` VALUES (0x01A1E179F6A776D485F3C0AF9237CBD6,'office.parcel.events','parcel.posted','parcel','waiting',2,1,0x7B2270617263656C223A2277616974696E67222C226E6F7465223A22227D,'application/json','','01a1e179-f6a7-76d4-85f3-c0af9237cbd6',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.031265','2026-11-15 23:10:29.031982',NULL,'parcel/waiting',165,'NEW',0,NULL,NULL,NULL,165);
INSERT INTO `postroad_outbox` VALUES (0x01A1E179F6A97E1197357217514F428E,'office.parcel.events','parcel.posted','parcel','worn',1,1,0x7B2270617263656C223A22776F726E222C226E6F7465223A22227D,'application/json','','01a1e179-f6a9-7e11-9735-7217514f428e',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.033960','2026-11-15 23:10:29.035493',NULL,'parcel/worn',255,'FAILED',5,'2000-01-01 00:00:00.000000','no',NULL,255);
INSERT INTO `postroad_outbox` VALUES (0x01A1E179F6AC7422A43BE51DF5698B61,'office.parcel.events','parcel.posted','parcel','worn',2,1,0x7B2270617263656C223A22776F726E222C226E6F7465223A22227D,'application/json','','01a1e179-f6ac-7422-a43b-e51df5698b61',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 23:10:29.036905','2026-11-15 23:10:29.037566',NULL,'parcel/worn',255,'NEW',0,NULL,NULL,NULL,255);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_shard` (
  `outbox` varchar(128) NOT NULL,
  `shard` smallint(6) NOT NULL,
  `owner` varchar(255) DEFAULT NULL,
  `token` binary(16) DEFAULT NULL,
  `epoch` bigint(20) NOT NULL DEFAULT 0,
  `expires_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`outbox`,`shard`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_version` (
  `aggregate_type` varchar(128) NOT NULL,
  `aggregate_id` varchar(255) NOT NULL,
  `version` bigint(20) NOT NULL,
  PRIMARY KEY (`aggregate_type`,`aggregate_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `postroad_version` VALUES ('parcel','moving',4);
INSERT INTO `postroad_version` VALUES ('parcel','waiting',4);
INSERT INTO `postroad_version` VALUES ('parcel','worn',4);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `postroad_worker` (
  `id` binary(16) NOT NULL,
  `kind` varchar(255) NOT NULL,
  `name` varchar(255) NOT NULL,
  `detail` varchar(255) NOT NULL DEFAULT '',
  `started_at` datetime(6) NOT NULL,
  `seen_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
/*!50003 SET @saved_sql_mode       = @@sql_mode */ ;
/*!50003 SET sql_mode              = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION' */ ;
/*!50003 SET @saved_cs_client      = @@character_set_client */ ;
/*!50003 SET @saved_cs_results     = @@character_set_results */ ;
/*!50003 SET @saved_col_connection = @@collation_connection */ ;
/*!50003 SET character_set_client  = utf8mb4 */ ;
/*!50003 SET character_set_results = utf8mb4 */ ;
/*!50003 SET collation_connection  = utf8mb4_general_ci */ ;
DELIMITER ;;
CREATE PROCEDURE `postroad_facts_add`(
  a_event_id BINARY(16), a_topic VARCHAR(255), a_event_type VARCHAR(128), a_aggregate_type VARCHAR(128) CHARSET utf8mb4,
  a_aggregate_id VARCHAR(255) CHARSET utf8mb4, a_ordering_key VARCHAR(520) CHARSET utf8mb4, a_shard SMALLINT,
  a_version BIGINT, a_schema_version INT, a_payload LONGBLOB, a_content_type VARCHAR(255), a_tenant_id VARCHAR(1024) CHARSET utf8mb4,
  a_correlation_id VARCHAR(1024) CHARSET utf8mb4, a_causation_id VARCHAR(1024) CHARSET utf8mb4,
  a_attributes LONGTEXT CHARSET utf8mb4, a_occurred_at DATETIME(6), a_deliver_at DATETIME(6)
)
BEGIN
  DECLARE given BIGINT;
  DECLARE taken BOOLEAN DEFAULT FALSE;
  -- A locking read, because a snapshot could show a version that is long past.
  INSERT INTO `postroad_version` (aggregate_type, aggregate_id, version) VALUES (a_aggregate_type, a_aggregate_id, 0)
  ON DUPLICATE KEY UPDATE version = version;
  SELECT version INTO given FROM `postroad_version`
   WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin
     FOR UPDATE;
  IF a_version <= given THEN
    SET taken = TRUE;
  ELSE
    SET given = COALESCE(a_version, given + 1);
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1062 SET taken = TRUE;
      INSERT INTO `postroad_facts` (`event_id`, `topic`, `event_type`, `aggregate_type`, `aggregate_id`, `version`,
        `schema_version`, `payload`, `content_type`, `tenant_id`, `correlation_id`, `causation_id`, `attributes`,
        `occurred_at`, `deliver_at`)
      VALUES (a_event_id, a_topic, a_event_type, a_aggregate_type, a_aggregate_id, given,
        a_schema_version, a_payload, a_content_type, a_tenant_id, a_correlation_id, a_causation_id, a_attributes,
        a_occurred_at, a_deliver_at);
    END;
  END IF;
  IF NOT taken THEN
    UPDATE `postroad_version` SET version = given
     WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin;
    INSERT INTO `postroad_facts_delivery` (`event_id`, `version`, `ordering_key`, `shard`) VALUES (a_event_id, given, a_ordering_key, a_shard);
  -- The same event again is nothing new. Asked only now: a read in a routine locks, and one that finds nothing would
  -- lock the gap into which all others write.
  ELSEIF NOT EXISTS (SELECT 1 FROM `postroad_facts` WHERE `event_id` = a_event_id LOCK IN SHARE MODE) THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
  END IF;
END
;;
DELIMITER ;
/*!50003 SET sql_mode              = @saved_sql_mode */ ;
/*!50003 SET character_set_client  = @saved_cs_client */ ;
/*!50003 SET character_set_results = @saved_cs_results */ ;
/*!50003 SET collation_connection  = @saved_col_connection */ ;
/*!50003 SET @saved_sql_mode       = @@sql_mode */ ;
/*!50003 SET sql_mode              = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION' */ ;
/*!50003 SET @saved_cs_client      = @@character_set_client */ ;
/*!50003 SET @saved_cs_results     = @@character_set_results */ ;
/*!50003 SET @saved_col_connection = @@collation_connection */ ;
/*!50003 SET character_set_client  = utf8mb4 */ ;
/*!50003 SET character_set_results = utf8mb4 */ ;
/*!50003 SET collation_connection  = utf8mb4_general_ci */ ;
DELIMITER ;;
CREATE PROCEDURE `postroad_facts_due`(a_shards LONGTEXT CHARSET utf8mb4, a_after LONGTEXT CHARSET utf8mb4, a_depth INT, a_most INT)
    READS SQL DATA
BEGIN
  DECLARE found LONGTEXT CHARSET utf8mb4 DEFAULT '';
  DECLARE seen INT;
  DECLARE at_shard SMALLINT;
  DECLARE at_key VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE first, last BIGINT;
  DECLARE at_end BOOLEAN DEFAULT FALSE;
  DECLARE places CURSOR FOR
    SELECT s.shard, COALESCE(a.after, '')
      FROM JSON_TABLE(a_shards, '$[*]' COLUMNS (n FOR ORDINALITY, shard SMALLINT PATH '$')) s
      LEFT JOIN JSON_TABLE(a_after, '$[*]' COLUMNS (n FOR ORDINALITY, after VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin PATH '$')) a ON a.n = s.n
     -- Not EXISTS, which might become a join with the whole backlog.
     WHERE (SELECT d.unsent_shard FROM `postroad_facts_delivery` d WHERE d.unsent_shard = s.shard LIMIT 1) IS NOT NULL;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET at_end = TRUE;
  OPEN places;
  each_shard: LOOP
    FETCH places INTO at_shard, at_key;
    IF at_end THEN
      LEAVE each_shard;
    END IF;
    SET seen = 0;
    each_key: LOOP
      SELECT d.`ordering_key`, d.`version` INTO at_key, first FROM `postroad_facts_delivery` d FORCE INDEX (`postroad_facts_unsent`)
       WHERE d.unsent_shard = at_shard AND d.`ordering_key` > at_key
       ORDER BY d.`ordering_key`, d.`version` LIMIT 1;
      IF at_end THEN
        SET at_end = FALSE;
        LEAVE each_key;
      END IF;
      SELECT d.`version` INTO last FROM `postroad_facts_delivery` d FORCE INDEX (`postroad_facts_unsent`)
       WHERE d.unsent_shard = at_shard AND d.`ordering_key` = at_key ORDER BY d.`version` DESC LIMIT 1;
      SET found = CONCAT(found, ',', JSON_ARRAY(at_shard, at_key, first, last));
      SET seen = seen + 1;
      IF seen >= a_depth THEN
        LEAVE each_key;
      END IF;
    END LOOP;
  END LOOP;
  CLOSE places;
  WITH RECURSIVE heads AS (
    SELECT f.shard, f.ordering_key, f.version, f.last,
           d.`state` <> 'FAILED' AND (d.`next_attempt_at` IS NULL OR d.`next_attempt_at` <= UTC_TIMESTAMP(6)) AS due
      FROM JSON_TABLE(CONCAT('[', SUBSTRING(found, 2), ']'), '$[*]' COLUMNS (
             shard SMALLINT PATH '$[0]', ordering_key VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
             version BIGINT PATH '$[2]', last BIGINT PATH '$[3]')) f
      JOIN `postroad_facts_delivery` d
        ON d.unsent_shard = f.shard AND d.`ordering_key` = f.ordering_key AND d.`version` = f.version
  ), share AS (
    SELECT LEAST(GREATEST(1, a_most DIV GREATEST(1, count(*))), 1000) AS events, MAX(h.last - h.version) AS longest
      FROM heads h WHERE h.due
  ), steps AS (
    SELECT CAST(0 AS SIGNED) AS n
    UNION ALL
    SELECT p.n + 1 FROM steps p, share WHERE p.n + 1 < share.events AND p.n < share.longest
  )
  -- Each version by itself, because a range of them would be read to the end of the backlog.
  SELECT h.shard, h.ordering_key, o.`event_id` AS event_id, d.`state` AS state, d.`attempts` AS attempts,
         o.`version` AS version, o.`topic` AS topic, o.`event_type` AS event_type,
         o.`aggregate_type` AS aggregate_type, o.`aggregate_id` AS aggregate_id,
         o.`schema_version` AS schema_version, `payload` AS payload, o.`content_type` AS content_type,
         o.`tenant_id` AS tenant_id, o.`correlation_id` AS correlation_id, o.`causation_id` AS causation_id,
         o.`attributes` AS attributes, o.`occurred_at` AS occurred_at, o.`deliver_at` AS deliver_at
    FROM heads h
    LEFT JOIN steps p ON h.due AND p.n <= h.last - h.version
    LEFT JOIN `postroad_facts_delivery` d
      ON p.n IS NOT NULL AND d.unsent_shard = h.shard AND d.`ordering_key` = h.ordering_key
     AND d.`version` = h.version + p.n
    LEFT JOIN `postroad_facts` o ON o.`event_id` = d.`event_id`
   WHERE NOT h.due OR d.`event_id` IS NOT NULL
   ORDER BY h.shard, h.ordering_key, d.`version`;
END
;;
DELIMITER ;
/*!50003 SET sql_mode              = @saved_sql_mode */ ;
/*!50003 SET character_set_client  = @saved_cs_client */ ;
/*!50003 SET character_set_results = @saved_cs_results */ ;
/*!50003 SET collation_connection  = @saved_col_connection */ ;
/*!50003 SET @saved_sql_mode       = @@sql_mode */ ;
/*!50003 SET sql_mode              = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION' */ ;
/*!50003 SET @saved_cs_client      = @@character_set_client */ ;
/*!50003 SET @saved_cs_results     = @@character_set_results */ ;
/*!50003 SET @saved_col_connection = @@collation_connection */ ;
/*!50003 SET character_set_client  = utf8mb4 */ ;
/*!50003 SET character_set_results = utf8mb4 */ ;
/*!50003 SET collation_connection  = utf8mb4_general_ci */ ;
DELIMITER ;;
CREATE PROCEDURE `postroad_outbox_add`(
  a_event_id BINARY(16), a_topic VARCHAR(255), a_event_type VARCHAR(128), a_aggregate_type VARCHAR(128) CHARSET utf8mb4,
  a_aggregate_id VARCHAR(255) CHARSET utf8mb4, a_ordering_key VARCHAR(520) CHARSET utf8mb4, a_shard SMALLINT,
  a_version BIGINT, a_schema_version INT, a_payload LONGBLOB, a_content_type VARCHAR(255), a_tenant_id VARCHAR(1024) CHARSET utf8mb4,
  a_correlation_id VARCHAR(1024) CHARSET utf8mb4, a_causation_id VARCHAR(1024) CHARSET utf8mb4,
  a_attributes LONGTEXT CHARSET utf8mb4, a_occurred_at DATETIME(6), a_deliver_at DATETIME(6)
)
BEGIN
  DECLARE given BIGINT;
  DECLARE taken BOOLEAN DEFAULT FALSE;
  -- A locking read, because a snapshot could show a version that is long past.
  INSERT INTO `postroad_version` (aggregate_type, aggregate_id, version) VALUES (a_aggregate_type, a_aggregate_id, 0)
  ON DUPLICATE KEY UPDATE version = version;
  SELECT version INTO given FROM `postroad_version`
   WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin
     FOR UPDATE;
  IF a_version <= given THEN
    SET taken = TRUE;
  ELSE
    SET given = COALESCE(a_version, given + 1);
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1062 SET taken = TRUE;
      INSERT INTO `postroad_outbox` (`event_id`, `topic`, `event_type`, `aggregate_type`, `aggregate_id`, `version`,
        `schema_version`, `payload`, `content_type`, `tenant_id`, `correlation_id`, `causation_id`, `attributes`,
        `occurred_at`, `deliver_at`, `ordering_key`, `shard`)
      VALUES (a_event_id, a_topic, a_event_type, a_aggregate_type, a_aggregate_id, given,
        a_schema_version, a_payload, a_content_type, a_tenant_id, a_correlation_id, a_causation_id, a_attributes,
        a_occurred_at, a_deliver_at, a_ordering_key, a_shard);
    END;
  END IF;
  IF NOT taken THEN
    UPDATE `postroad_version` SET version = given
     WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin;
    
  -- The same event again is nothing new. Asked only now: a read in a routine locks, and one that finds nothing would
  -- lock the gap into which all others write.
  ELSEIF NOT EXISTS (SELECT 1 FROM `postroad_outbox` WHERE `event_id` = a_event_id LOCK IN SHARE MODE) THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
  END IF;
END
;;
DELIMITER ;
/*!50003 SET sql_mode              = @saved_sql_mode */ ;
/*!50003 SET character_set_client  = @saved_cs_client */ ;
/*!50003 SET character_set_results = @saved_cs_results */ ;
/*!50003 SET collation_connection  = @saved_col_connection */ ;
/*!50003 SET @saved_sql_mode       = @@sql_mode */ ;
/*!50003 SET sql_mode              = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION' */ ;
/*!50003 SET @saved_cs_client      = @@character_set_client */ ;
/*!50003 SET @saved_cs_results     = @@character_set_results */ ;
/*!50003 SET @saved_col_connection = @@collation_connection */ ;
/*!50003 SET character_set_client  = utf8mb4 */ ;
/*!50003 SET character_set_results = utf8mb4 */ ;
/*!50003 SET collation_connection  = utf8mb4_general_ci */ ;
DELIMITER ;;
CREATE PROCEDURE `postroad_outbox_due`(a_shards LONGTEXT CHARSET utf8mb4, a_after LONGTEXT CHARSET utf8mb4, a_depth INT, a_most INT)
    READS SQL DATA
BEGIN
  DECLARE found LONGTEXT CHARSET utf8mb4 DEFAULT '';
  DECLARE seen INT;
  DECLARE at_shard SMALLINT;
  DECLARE at_key VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE first, last BIGINT;
  DECLARE at_end BOOLEAN DEFAULT FALSE;
  DECLARE places CURSOR FOR
    SELECT s.shard, COALESCE(a.after, '')
      FROM JSON_TABLE(a_shards, '$[*]' COLUMNS (n FOR ORDINALITY, shard SMALLINT PATH '$')) s
      LEFT JOIN JSON_TABLE(a_after, '$[*]' COLUMNS (n FOR ORDINALITY, after VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin PATH '$')) a ON a.n = s.n
     -- Not EXISTS, which might become a join with the whole backlog.
     WHERE (SELECT d.unsent_shard FROM `postroad_outbox` d WHERE d.unsent_shard = s.shard LIMIT 1) IS NOT NULL;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET at_end = TRUE;
  OPEN places;
  each_shard: LOOP
    FETCH places INTO at_shard, at_key;
    IF at_end THEN
      LEAVE each_shard;
    END IF;
    SET seen = 0;
    each_key: LOOP
      SELECT d.`ordering_key`, d.`version` INTO at_key, first FROM `postroad_outbox` d FORCE INDEX (`postroad_outbox_unsent`)
       WHERE d.unsent_shard = at_shard AND d.`ordering_key` > at_key
       ORDER BY d.`ordering_key`, d.`version` LIMIT 1;
      IF at_end THEN
        SET at_end = FALSE;
        LEAVE each_key;
      END IF;
      SELECT d.`version` INTO last FROM `postroad_outbox` d FORCE INDEX (`postroad_outbox_unsent`)
       WHERE d.unsent_shard = at_shard AND d.`ordering_key` = at_key ORDER BY d.`version` DESC LIMIT 1;
      SET found = CONCAT(found, ',', JSON_ARRAY(at_shard, at_key, first, last));
      SET seen = seen + 1;
      IF seen >= a_depth THEN
        LEAVE each_key;
      END IF;
    END LOOP;
  END LOOP;
  CLOSE places;
  WITH RECURSIVE heads AS (
    SELECT f.shard, f.ordering_key, f.version, f.last,
           d.`state` <> 'FAILED' AND (d.`next_attempt_at` IS NULL OR d.`next_attempt_at` <= UTC_TIMESTAMP(6)) AS due
      FROM JSON_TABLE(CONCAT('[', SUBSTRING(found, 2), ']'), '$[*]' COLUMNS (
             shard SMALLINT PATH '$[0]', ordering_key VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
             version BIGINT PATH '$[2]', last BIGINT PATH '$[3]')) f
      JOIN `postroad_outbox` d
        ON d.unsent_shard = f.shard AND d.`ordering_key` = f.ordering_key AND d.`version` = f.version
  ), share AS (
    SELECT LEAST(GREATEST(1, a_most DIV GREATEST(1, count(*))), 1000) AS events, MAX(h.last - h.version) AS longest
      FROM heads h WHERE h.due
  ), steps AS (
    SELECT CAST(0 AS SIGNED) AS n
    UNION ALL
    SELECT p.n + 1 FROM steps p, share WHERE p.n + 1 < share.events AND p.n < share.longest
  )
  -- Each version by itself, because a range of them would be read to the end of the backlog.
  SELECT h.shard, h.ordering_key, d.`event_id` AS event_id, d.`state` AS state, d.`attempts` AS attempts,
         d.`version` AS version, d.`topic` AS topic, d.`event_type` AS event_type,
         d.`aggregate_type` AS aggregate_type, d.`aggregate_id` AS aggregate_id,
         d.`schema_version` AS schema_version, `payload` AS payload, d.`content_type` AS content_type,
         d.`tenant_id` AS tenant_id, d.`correlation_id` AS correlation_id, d.`causation_id` AS causation_id,
         d.`attributes` AS attributes, d.`occurred_at` AS occurred_at, d.`deliver_at` AS deliver_at
    FROM heads h
    LEFT JOIN steps p ON h.due AND p.n <= h.last - h.version
    LEFT JOIN `postroad_outbox` d
      ON p.n IS NOT NULL AND d.unsent_shard = h.shard AND d.`ordering_key` = h.ordering_key
     AND d.`version` = h.version + p.n
    
   WHERE NOT h.due OR d.`event_id` IS NOT NULL
   ORDER BY h.shard, h.ordering_key, d.`version`;
END
;;
DELIMITER ;
/*!50003 SET sql_mode              = @saved_sql_mode */ ;
/*!50003 SET character_set_client  = @saved_cs_client */ ;
/*!50003 SET character_set_results = @saved_cs_results */ ;
/*!50003 SET collation_connection  = @saved_col_connection */ ;
INSERT INTO postroad_shard (outbox, shard)
WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 255)
SELECT o.name, n.n FROM n, (SELECT 'postroad_outbox' AS name UNION SELECT 'postroad_facts') o;
