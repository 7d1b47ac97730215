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
INSERT INTO `postroad_facts` VALUES (0x01A1E15A503B7B16A87C06570FD62065,'office.parcel.events','parcel.posted','parcel','moving',3,1,0x7B2270617263656C223A226D6F76696E67222C226E6F7465223A22227D,'application/json','','01a1e15a-503b-7b16-a87c-06570fd62065',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.811153','2026-11-15 22:35:54.817112',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E15A50457D59ADC5F90C7B6C6941,'office.parcel.events','parcel.posted','parcel','moving',4,1,0x7B2270617263656C223A226D6F76696E67222C226E6F7465223A22227D,'application/json','','01a1e15a-5045-7d59-adc5-f90c7b6c6941',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.821128','2026-11-15 22:35:54.824502',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E15A504D77CFA2D09F2783D34DB4,'office.parcel.events','parcel.posted','parcel','waiting',3,1,0x7B2270617263656C223A2277616974696E67222C226E6F7465223A22227D,'application/json','','01a1e15a-504d-77cf-a2d0-9f2783d34db4',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.829479','2026-11-15 22:35:54.831697',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E15A5053787B86E730D533022BDC,'office.parcel.events','parcel.posted','parcel','waiting',4,1,0x7B2270617263656C223A2277616974696E67222C226E6F7465223A22227D,'application/json','','01a1e15a-5053-787b-86e7-30d533022bdc',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.835104','2026-11-15 22:35:54.837276',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E15A50577A74AABB2DD430610BB0,'office.parcel.events','parcel.posted','parcel','worn',3,1,0x7B2270617263656C223A22776F726E222C226E6F7465223A22227D,'application/json','','01a1e15a-5057-7a74-aabb-2dd430610bb0',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.839899','2026-11-15 22:35:54.841114',NULL);
INSERT INTO `postroad_facts` VALUES (0x01A1E15A505D708FB110C3B0BE2CFF5B,'office.parcel.events','parcel.posted','parcel','worn',4,1,0x7B2270617263656C223A22776F726E222C226E6F7465223A22227D,'application/json','','01a1e15a-505d-708f-b110-c3b0be2cff5b',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.845434','2026-11-15 22:35:54.846788',NULL);
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
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E15A503B7B16A87C06570FD62065,3,'parcel/moving',111,'SENT',0,NULL,NULL,'2000-01-01 00:00:00.000000',NULL);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E15A50457D59ADC5F90C7B6C6941,4,'parcel/moving',111,'NEW',0,NULL,NULL,NULL,111);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E15A504D77CFA2D09F2783D34DB4,3,'parcel/waiting',165,'RETRY',1,'2000-01-01 00:00:00.000000','no',NULL,165);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E15A5053787B86E730D533022BDC,4,'parcel/waiting',165,'NEW',0,NULL,NULL,NULL,165);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E15A50577A74AABB2DD430610BB0,3,'parcel/worn',255,'FAILED',5,'2000-01-01 00:00:00.000000','no',NULL,255);
INSERT INTO `postroad_facts_delivery` VALUES (0x01A1E15A505D708FB110C3B0BE2CFF5B,4,'parcel/worn',255,'NEW',0,NULL,NULL,NULL,255);
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
INSERT INTO `postroad_migration` VALUES ('0001_core','','2026-11-15 22:35:54.530012');
INSERT INTO `postroad_migration` VALUES ('0002_outbox_append_only','postroad_facts','2026-11-15 22:35:54.561134');
INSERT INTO `postroad_migration` VALUES ('0002_outbox_in_row','postroad_outbox','2026-11-15 22:35:54.590216');
INSERT INTO `postroad_migration` VALUES ('0003_outbox_routines','postroad_facts','2026-11-15 22:35:54.741491');
INSERT INTO `postroad_migration` VALUES ('0003_outbox_routines','postroad_outbox','2026-11-15 22:35:54.678734');
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
INSERT INTO `postroad_outbox` VALUES (0x01A1E15A4FF97ACB9A5E7B2E0E62F65B,'office.parcel.events','parcel.posted','parcel','moving',1,1,0x7B2270617263656C223A226D6F76696E67222C226E6F7465223A22227D,'application/json','','01a1e15a-4ff9-7acb-9a5e-7b2e0e62f65b',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.745268','2026-11-15 22:35:54.747612',NULL,'parcel/moving',111,'SENT',0,NULL,NULL,'2000-01-01 00:00:00.000000',NULL);
INSERT INTO `postroad_outbox` VALUES (0x01A1E15A4FFF756195CD36ED8E68E7C5,'office.parcel.events','parcel.posted','parcel','moving',2,1,0x7B2270617263656C223A226D6F76696E67222C226E6F7465223A22227D,'application/json','','01a1e15a-4fff-7561-95cd-36ed8e68e7c5',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.751486','2026-11-15 22:35:54.753158',NULL,'parcel/moving',111,'NEW',0,NULL,NULL,NULL,111);
INSERT INTO `postroad_outbox` VALUES (0x01A1E15A50057F55BB9E47FD45FA95B6,'office.parcel.events','parcel.posted','parcel','waiting',1,1,0x7B2270617263656C223A2277616974696E67222C226E6F7465223A22227D,'application/json','','01a1e15a-5005-7f55-bb9e-47fd45fa95b6',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.757067','2026-11-15 22:35:54.759459',NULL,'parcel/waiting',165,'RETRY',1,'2000-01-01 00:00:00.000000','no',NULL,165);
INSERT INTO `postroad_outbox` VALUES (0x01A1E15A501072CC8504EBA27B1FD4CB,'office.parcel.events','parcel.posted','parcel','waiting',2,1,0x7B2270617263656C223A2277616974696E67222C226E6F7465223A22227D,'application/json','','01a1e15a-5010-72cc-8504-eba27b1fd4cb',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.768563','2026-11-15 22:35:54.769775',NULL,'parcel/waiting',165,'NEW',0,NULL,NULL,NULL,165);
INSERT INTO `postroad_outbox` VALUES (0x01A1E15A5019788BAF2B31987BF3046C,'office.parcel.events','parcel.posted','parcel','worn',1,1,0x7B2270617263656C223A22776F726E222C226E6F7465223A22227D,'application/json','','01a1e15a-5019-788b-af2b-31987bf3046c',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.777139','2026-11-15 22:35:54.779573',NULL,'parcel/worn',255,'FAILED',5,'2000-01-01 00:00:00.000000','no',NULL,255);
INSERT INTO `postroad_outbox` VALUES (0x01A1E15A501F7685AD857286A08EE175,'office.parcel.events','parcel.posted','parcel','worn',2,1,0x7B2270617263656C223A22776F726E222C226E6F7465223A22227D,'application/json','','01a1e15a-501f-7685-ad85-7286a08ee175',NULL,'{\"source_service\":\"office\",\"headers\":{\"kept\":\"yes\"}}','2026-11-15 22:35:54.783798','2026-11-15 22:35:54.785338',NULL,'parcel/worn',255,'NEW',0,NULL,NULL,NULL,255);
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
  IF NOT EXISTS (SELECT 1 FROM `postroad_facts` WHERE `event_id` = a_event_id) THEN
    -- A locking read, because a snapshot could show a version that is long past.
    INSERT INTO `postroad_version` (aggregate_type, aggregate_id, version) VALUES (a_aggregate_type, a_aggregate_id, 0)
    ON DUPLICATE KEY UPDATE version = version;
    SELECT version INTO given FROM `postroad_version`
     WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin
       FOR UPDATE;
    IF a_version <= given THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
    END IF;
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
    IF NOT taken THEN
      UPDATE `postroad_version` SET version = given
       WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin;
      INSERT INTO `postroad_facts_delivery` (`event_id`, `version`, `ordering_key`, `shard`) VALUES (a_event_id, given, a_ordering_key, a_shard);
    -- Whoever held the counter until now may have written this very event: then there is nothing to do.
    ELSEIF NOT EXISTS (SELECT 1 FROM `postroad_facts` WHERE `event_id` = a_event_id LOCK IN SHARE MODE) THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
    END IF;
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
  IF NOT EXISTS (SELECT 1 FROM `postroad_outbox` WHERE `event_id` = a_event_id) THEN
    -- A locking read, because a snapshot could show a version that is long past.
    INSERT INTO `postroad_version` (aggregate_type, aggregate_id, version) VALUES (a_aggregate_type, a_aggregate_id, 0)
    ON DUPLICATE KEY UPDATE version = version;
    SELECT version INTO given FROM `postroad_version`
     WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin
       FOR UPDATE;
    IF a_version <= given THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
    END IF;
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
    IF NOT taken THEN
      UPDATE `postroad_version` SET version = given
       WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin;
      
    -- Whoever held the counter until now may have written this very event: then there is nothing to do.
    ELSEIF NOT EXISTS (SELECT 1 FROM `postroad_outbox` WHERE `event_id` = a_event_id LOCK IN SHARE MODE) THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
    END IF;
  END IF;
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
