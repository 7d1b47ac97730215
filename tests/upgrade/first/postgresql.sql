SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.postroad_facts_add(a_event_id uuid, a_topic text, a_event_type text, a_aggregate_type text, a_aggregate_id text, a_ordering_key text, a_shard integer, a_version bigint, a_schema_version integer, a_payload bytea, a_content_type text, a_tenant_id text, a_correlation_id text, a_causation_id text, a_attributes text, a_occurred_at timestamp with time zone, a_deliver_at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
  given bigint;
BEGIN
  -- Before a given version moves the counter: there would be no telling where it stood.
  IF a_version IS NOT NULL AND EXISTS (SELECT 1 FROM "postroad_facts" WHERE "event_id" = a_event_id) THEN
    RETURN NULL;
  END IF;
  INSERT INTO "postroad_version" AS v (aggregate_type, aggregate_id, version)
  VALUES (a_aggregate_type, a_aggregate_id, COALESCE(a_version, 1))
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = COALESCE(a_version, v.version + 1)
   WHERE COALESCE(a_version, v.version + 1) > v.version
  RETURNING version INTO given;
  IF given IS NOT NULL THEN
    INSERT INTO "postroad_facts" ("event_id", "topic", "event_type", "aggregate_type", "aggregate_id", "version",
      "schema_version", "payload", "content_type", "tenant_id", "correlation_id", "causation_id", "attributes",
      "occurred_at", "deliver_at")
    VALUES (a_event_id, a_topic, a_event_type, a_aggregate_type, a_aggregate_id, given,
      a_schema_version, a_payload, a_content_type, a_tenant_id, a_correlation_id, a_causation_id, a_attributes,
      a_occurred_at, a_deliver_at)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      INSERT INTO "postroad_facts_delivery" ("event_id", "version", "ordering_key", "shard") VALUES (a_event_id, given, a_ordering_key, a_shard);
      RETURN given;
    END IF;
    -- Not written, so the number is free again; the counter is still locked.
    UPDATE "postroad_version" SET version = given - 1
     WHERE aggregate_type = a_aggregate_type AND aggregate_id = a_aggregate_id AND a_version IS NULL;
  END IF;
  IF NOT EXISTS (SELECT 1 FROM "postroad_facts" WHERE "event_id" = a_event_id) THEN
    RAISE EXCEPTION 'postroad: version conflict' USING ERRCODE = 'PRVER', DETAIL = CAST(a_event_id AS text);
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION public.postroad_outbox_add(a_event_id uuid, a_topic text, a_event_type text, a_aggregate_type text, a_aggregate_id text, a_ordering_key text, a_shard integer, a_version bigint, a_schema_version integer, a_payload bytea, a_content_type text, a_tenant_id text, a_correlation_id text, a_causation_id text, a_attributes text, a_occurred_at timestamp with time zone, a_deliver_at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
  given bigint;
BEGIN
  -- Before a given version moves the counter: there would be no telling where it stood.
  IF a_version IS NOT NULL AND EXISTS (SELECT 1 FROM "postroad_outbox" WHERE "event_id" = a_event_id) THEN
    RETURN NULL;
  END IF;
  INSERT INTO "postroad_version" AS v (aggregate_type, aggregate_id, version)
  VALUES (a_aggregate_type, a_aggregate_id, COALESCE(a_version, 1))
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = COALESCE(a_version, v.version + 1)
   WHERE COALESCE(a_version, v.version + 1) > v.version
  RETURNING version INTO given;
  IF given IS NOT NULL THEN
    INSERT INTO "postroad_outbox" ("event_id", "topic", "event_type", "aggregate_type", "aggregate_id", "version",
      "schema_version", "payload", "content_type", "tenant_id", "correlation_id", "causation_id", "attributes",
      "occurred_at", "deliver_at", "ordering_key", "shard")
    VALUES (a_event_id, a_topic, a_event_type, a_aggregate_type, a_aggregate_id, given,
      a_schema_version, a_payload, a_content_type, a_tenant_id, a_correlation_id, a_causation_id, a_attributes,
      a_occurred_at, a_deliver_at, a_ordering_key, a_shard)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN given;
    END IF;
    -- Not written, so the number is free again; the counter is still locked.
    UPDATE "postroad_version" SET version = given - 1
     WHERE aggregate_type = a_aggregate_type AND aggregate_id = a_aggregate_id AND a_version IS NULL;
  END IF;
  IF NOT EXISTS (SELECT 1 FROM "postroad_outbox" WHERE "event_id" = a_event_id) THEN
    RAISE EXCEPTION 'postroad: version conflict' USING ERRCODE = 'PRVER', DETAIL = CAST(a_event_id AS text);
  END IF;
  RETURN NULL;
END $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.postroad_audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail text
);
ALTER TABLE public.postroad_audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.postroad_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.postroad_facts (
    event_id uuid NOT NULL,
    topic text NOT NULL,
    event_type character varying(128) NOT NULL,
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    schema_version integer DEFAULT 1 NOT NULL,
    payload bytea NOT NULL,
    content_type text DEFAULT 'application/json'::text NOT NULL,
    tenant_id text DEFAULT ''::text NOT NULL,
    correlation_id text,
    causation_id text,
    attributes text,
    occurred_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deliver_at timestamp with time zone
);
CREATE TABLE public.postroad_facts_delivery (
    event_id uuid NOT NULL,
    version bigint NOT NULL,
    ordering_key text COLLATE pg_catalog."C",
    shard smallint,
    state character varying(8) DEFAULT 'NEW'::character varying NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_attempt_at timestamp with time zone,
    last_error text,
    published_at timestamp with time zone
);
CREATE TABLE public.postroad_handler (
    consumer_group character varying(64) NOT NULL,
    event_type character varying(128) NOT NULL,
    first_seen timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL
);
CREATE TABLE public.postroad_inbox (
    consumer_group character varying(64) NOT NULL,
    event_id uuid NOT NULL,
    tenant_id text DEFAULT ''::text NOT NULL,
    event_type character varying(128) NOT NULL,
    topic text DEFAULT ''::text NOT NULL,
    ordering_key text COLLATE pg_catalog."C",
    version bigint DEFAULT 0 NOT NULL,
    status smallint NOT NULL,
    locked_by text,
    locked_until timestamp with time zone,
    epoch bigint DEFAULT 0 NOT NULL,
    next_retry_at timestamp with time zone,
    retry_count integer DEFAULT 0 NOT NULL,
    error_msg character varying(256),
    received_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    processed_at timestamp with time zone,
    waiting_key text COLLATE pg_catalog."C",
    message bytea
);
CREATE TABLE public.postroad_migration (
    name character varying(128) NOT NULL,
    target character varying(128) NOT NULL,
    applied_at timestamp with time zone NOT NULL
);
CREATE TABLE public.postroad_outbox (
    event_id uuid NOT NULL,
    topic text NOT NULL,
    event_type character varying(128) NOT NULL,
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    schema_version integer DEFAULT 1 NOT NULL,
    payload bytea NOT NULL,
    content_type text DEFAULT 'application/json'::text NOT NULL,
    tenant_id text DEFAULT ''::text NOT NULL,
    correlation_id text,
    causation_id text,
    attributes text,
    occurred_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deliver_at timestamp with time zone,
    ordering_key text COLLATE pg_catalog."C",
    shard smallint,
    state character varying(8) DEFAULT 'NEW'::character varying NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_attempt_at timestamp with time zone,
    last_error text,
    published_at timestamp with time zone
);
CREATE TABLE public.postroad_shard (
    outbox text NOT NULL,
    shard smallint NOT NULL,
    owner text,
    token uuid,
    epoch bigint DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone
)
WITH (fillfactor='50');
CREATE TABLE public.postroad_version (
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE public.postroad_worker (
    id uuid NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL
);
INSERT INTO public.postroad_facts VALUES ('01a1e179-f593-7834-a171-62d7ed772d47', 'office.parcel.events', 'parcel.posted', 'parcel', 'moving', 3, 1, '\x7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f593-7834-a171-62d7ed772d47', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.755342+00', '2026-11-15 23:10:28.758213+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e179-f598-7d42-b3eb-478a30848cb9', 'office.parcel.events', 'parcel.posted', 'parcel', 'moving', 4, 1, '\x7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f598-7d42-b3eb-478a30848cb9', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.760063+00', '2026-11-15 23:10:28.761767+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e179-f59b-7d56-ba88-3a8395483ee6', 'office.parcel.events', 'parcel.posted', 'parcel', 'waiting', 3, 1, '\x7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f59b-7d56-ba88-3a8395483ee6', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.763941+00', '2026-11-15 23:10:28.765563+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e179-f59f-790a-aecf-008b20253d94', 'office.parcel.events', 'parcel.posted', 'parcel', 'waiting', 4, 1, '\x7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f59f-790a-aecf-008b20253d94', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.767098+00', '2026-11-15 23:10:28.767768+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e179-f5a0-785d-a37d-c08f90c14683', 'office.parcel.events', 'parcel.posted', 'parcel', 'worn', 3, 1, '\x7b2270617263656c223a22776f726e222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f5a0-785d-a37d-c08f90c14683', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.768896+00', '2026-11-15 23:10:28.769945+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e179-f5a2-72e2-89ee-01f84f422043', 'office.parcel.events', 'parcel.posted', 'parcel', 'worn', 4, 1, '\x7b2270617263656c223a22776f726e222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f5a2-72e2-89ee-01f84f422043', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.770883+00', '2026-11-15 23:10:28.77211+00', NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e179-f598-7d42-b3eb-478a30848cb9', 4, 'parcel/moving', 111, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e179-f59f-790a-aecf-008b20253d94', 4, 'parcel/waiting', 165, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e179-f5a2-72e2-89ee-01f84f422043', 4, 'parcel/worn', 255, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e179-f593-7834-a171-62d7ed772d47', 3, 'parcel/moving', 111, 'SENT', 0, NULL, NULL, '2000-01-01 00:00:00+00');
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e179-f59b-7d56-ba88-3a8395483ee6', 3, 'parcel/waiting', 165, 'RETRY', 1, '2000-01-01 00:00:00+00', 'no', NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e179-f5a0-785d-a37d-c08f90c14683', 3, 'parcel/worn', 255, 'FAILED', 5, '2000-01-01 00:00:00+00', 'no', NULL);
INSERT INTO public.postroad_migration VALUES ('0001_core', '', '2026-11-15 23:10:28.700331+00');
INSERT INTO public.postroad_migration VALUES ('0002_outbox_append_only', 'postroad_facts', '2026-11-15 23:10:28.709557+00');
INSERT INTO public.postroad_migration VALUES ('0002_outbox_in_row', 'postroad_outbox', '2026-11-15 23:10:28.715441+00');
INSERT INTO public.postroad_migration VALUES ('0003_outbox_routines', 'postroad_outbox', '2026-11-15 23:10:28.72153+00');
INSERT INTO public.postroad_migration VALUES ('0003_outbox_routines', 'postroad_facts', '2026-11-15 23:10:28.726135+00');
INSERT INTO public.postroad_outbox VALUES ('01a1e179-f57d-79c2-8dc6-52cc2c8100bd', 'office.parcel.events', 'parcel.posted', 'parcel', 'moving', 2, 1, '\x7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f57d-79c2-8dc6-52cc2c8100bd', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.733466+00', '2026-11-15 23:10:28.735435+00', NULL, 'parcel/moving', 111, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_outbox VALUES ('01a1e179-f584-7869-b876-a26e3e6391ec', 'office.parcel.events', 'parcel.posted', 'parcel', 'waiting', 2, 1, '\x7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f584-7869-b876-a26e3e6391ec', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.740996+00', '2026-11-15 23:10:28.741872+00', NULL, 'parcel/waiting', 165, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_outbox VALUES ('01a1e179-f588-7547-9b0e-ccf2c47138db', 'office.parcel.events', 'parcel.posted', 'parcel', 'worn', 2, 1, '\x7b2270617263656c223a22776f726e222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f588-7547-9b0e-ccf2c47138db', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.744969+00', '2026-11-15 23:10:28.746198+00', NULL, 'parcel/worn', 255, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_outbox VALUES ('01a1e179-f578-7750-bc8e-2bd5e2bd2999', 'office.parcel.events', 'parcel.posted', 'parcel', 'moving', 1, 1, '\x7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f578-7750-bc8e-2bd5e2bd2999', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.728114+00', '2026-11-15 23:10:28.731436+00', NULL, 'parcel/moving', 111, 'SENT', 0, NULL, NULL, '2000-01-01 00:00:00+00');
INSERT INTO public.postroad_outbox VALUES ('01a1e179-f580-7ae7-b3f8-3db0956da2df', 'office.parcel.events', 'parcel.posted', 'parcel', 'waiting', 1, 1, '\x7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f580-7ae7-b3f8-3db0956da2df', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.736986+00', '2026-11-15 23:10:28.739548+00', NULL, 'parcel/waiting', 165, 'RETRY', 1, '2000-01-01 00:00:00+00', 'no', NULL);
INSERT INTO public.postroad_outbox VALUES ('01a1e179-f586-7a0e-9a37-d4422f2a39bd', 'office.parcel.events', 'parcel.posted', 'parcel', 'worn', 1, 1, '\x7b2270617263656c223a22776f726e222c226e6f7465223a22227d', 'application/json', '', '01a1e179-f586-7a0e-9a37-d4422f2a39bd', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 23:10:28.742869+00', '2026-11-15 23:10:28.743841+00', NULL, 'parcel/worn', 255, 'FAILED', 5, '2000-01-01 00:00:00+00', 'no', NULL);
INSERT INTO public.postroad_version VALUES ('parcel', 'moving', 4);
INSERT INTO public.postroad_version VALUES ('parcel', 'waiting', 4);
INSERT INTO public.postroad_version VALUES ('parcel', 'worn', 4);
SELECT pg_catalog.setval('public.postroad_audit_id_seq', 1, false);
ALTER TABLE ONLY public.postroad_audit
    ADD CONSTRAINT postroad_audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.postroad_facts
    ADD CONSTRAINT postroad_facts_aggregate_type_aggregate_id_version_key UNIQUE (aggregate_type, aggregate_id, version);
ALTER TABLE ONLY public.postroad_facts_delivery
    ADD CONSTRAINT postroad_facts_delivery_pkey PRIMARY KEY (event_id);
ALTER TABLE ONLY public.postroad_facts
    ADD CONSTRAINT postroad_facts_pkey PRIMARY KEY (event_id);
ALTER TABLE ONLY public.postroad_handler
    ADD CONSTRAINT postroad_handler_pkey PRIMARY KEY (consumer_group, event_type);
ALTER TABLE ONLY public.postroad_inbox
    ADD CONSTRAINT postroad_inbox_pkey PRIMARY KEY (consumer_group, event_id);
ALTER TABLE ONLY public.postroad_migration
    ADD CONSTRAINT postroad_migration_pkey PRIMARY KEY (name, target);
ALTER TABLE ONLY public.postroad_outbox
    ADD CONSTRAINT postroad_outbox_aggregate_type_aggregate_id_version_key UNIQUE (aggregate_type, aggregate_id, version);
ALTER TABLE ONLY public.postroad_outbox
    ADD CONSTRAINT postroad_outbox_pkey PRIMARY KEY (event_id);
ALTER TABLE ONLY public.postroad_shard
    ADD CONSTRAINT postroad_shard_pkey PRIMARY KEY (outbox, shard);
ALTER TABLE ONLY public.postroad_version
    ADD CONSTRAINT postroad_version_pkey PRIMARY KEY (aggregate_type, aggregate_id);
ALTER TABLE ONLY public.postroad_worker
    ADD CONSTRAINT postroad_worker_pkey PRIMARY KEY (id);
CREATE INDEX postroad_facts_sent ON public.postroad_facts_delivery USING btree (published_at) WHERE ((state)::text = 'SENT'::text);
CREATE INDEX postroad_facts_unsent ON public.postroad_facts_delivery USING btree (shard, ordering_key, version) WHERE ((state)::text <> ALL ((ARRAY['SENT'::character varying, 'SKIPPED'::character varying])::text[]));
CREATE INDEX postroad_inbox_processed ON public.postroad_inbox USING btree (processed_at) WHERE (status = 1);
CREATE INDEX postroad_inbox_unsettled ON public.postroad_inbox USING btree (consumer_group, next_retry_at) WHERE (status <> 1);
CREATE INDEX postroad_inbox_waiting ON public.postroad_inbox USING btree (consumer_group, waiting_key) WHERE (waiting_key IS NOT NULL);
CREATE INDEX postroad_outbox_sent ON public.postroad_outbox USING btree (published_at) WHERE ((state)::text = 'SENT'::text);
CREATE INDEX postroad_outbox_unsent ON public.postroad_outbox USING btree (shard, ordering_key, version) WHERE ((state)::text <> ALL ((ARRAY['SENT'::character varying, 'SKIPPED'::character varying])::text[]));
INSERT INTO public.postroad_shard (outbox, shard)
WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 255)
SELECT o.name, n.n FROM n, (SELECT 'postroad_outbox' AS name UNION SELECT 'postroad_facts') o;
