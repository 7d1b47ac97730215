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
  IF EXISTS (SELECT 1 FROM "postroad_facts" WHERE "event_id" = a_event_id) THEN
    RETURN NULL;
  END IF;
  INSERT INTO "postroad_version" AS v (aggregate_type, aggregate_id, version)
  VALUES (a_aggregate_type, a_aggregate_id, COALESCE(a_version, 1))
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = COALESCE(a_version, v.version + 1)
   WHERE COALESCE(a_version, v.version + 1) > v.version
  RETURNING version INTO given;
  -- Again, because whoever held the counter until now may have written this very event.
  IF EXISTS (SELECT 1 FROM "postroad_facts" WHERE "event_id" = a_event_id) THEN
    UPDATE "postroad_version" SET version = version - 1
     WHERE aggregate_type = a_aggregate_type AND aggregate_id = a_aggregate_id AND a_version IS NULL;
    RETURN NULL;
  END IF;
  IF given IS NULL THEN
    RAISE EXCEPTION 'postroad: version conflict' USING ERRCODE = 'PRVER', DETAIL = CAST(a_event_id AS text);
  END IF;
  INSERT INTO "postroad_facts" ("event_id", "topic", "event_type", "aggregate_type", "aggregate_id", "version",
    "schema_version", "payload", "content_type", "tenant_id", "correlation_id", "causation_id", "attributes",
    "occurred_at", "deliver_at")
  VALUES (a_event_id, a_topic, a_event_type, a_aggregate_type, a_aggregate_id, given,
    a_schema_version, a_payload, a_content_type, a_tenant_id, a_correlation_id, a_causation_id, a_attributes,
    a_occurred_at, a_deliver_at);
  INSERT INTO "postroad_facts_delivery" ("event_id", "version", "ordering_key", "shard") VALUES (a_event_id, given, a_ordering_key, a_shard);
  RETURN given;
END $$;
CREATE FUNCTION public.postroad_outbox_add(a_event_id uuid, a_topic text, a_event_type text, a_aggregate_type text, a_aggregate_id text, a_ordering_key text, a_shard integer, a_version bigint, a_schema_version integer, a_payload bytea, a_content_type text, a_tenant_id text, a_correlation_id text, a_causation_id text, a_attributes text, a_occurred_at timestamp with time zone, a_deliver_at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
  given bigint;
BEGIN
  IF EXISTS (SELECT 1 FROM "postroad_outbox" WHERE "event_id" = a_event_id) THEN
    RETURN NULL;
  END IF;
  INSERT INTO "postroad_version" AS v (aggregate_type, aggregate_id, version)
  VALUES (a_aggregate_type, a_aggregate_id, COALESCE(a_version, 1))
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = COALESCE(a_version, v.version + 1)
   WHERE COALESCE(a_version, v.version + 1) > v.version
  RETURNING version INTO given;
  -- Again, because whoever held the counter until now may have written this very event.
  IF EXISTS (SELECT 1 FROM "postroad_outbox" WHERE "event_id" = a_event_id) THEN
    UPDATE "postroad_version" SET version = version - 1
     WHERE aggregate_type = a_aggregate_type AND aggregate_id = a_aggregate_id AND a_version IS NULL;
    RETURN NULL;
  END IF;
  IF given IS NULL THEN
    RAISE EXCEPTION 'postroad: version conflict' USING ERRCODE = 'PRVER', DETAIL = CAST(a_event_id AS text);
  END IF;
  INSERT INTO "postroad_outbox" ("event_id", "topic", "event_type", "aggregate_type", "aggregate_id", "version",
    "schema_version", "payload", "content_type", "tenant_id", "correlation_id", "causation_id", "attributes",
    "occurred_at", "deliver_at", "ordering_key", "shard")
  VALUES (a_event_id, a_topic, a_event_type, a_aggregate_type, a_aggregate_id, given,
    a_schema_version, a_payload, a_content_type, a_tenant_id, a_correlation_id, a_causation_id, a_attributes,
    a_occurred_at, a_deliver_at, a_ordering_key, a_shard);
  RETURN given;
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
INSERT INTO public.postroad_facts VALUES ('01a1e15e-eaf2-7a5d-8402-303b1ff48418', 'office.parcel.events', 'parcel.posted', 'parcel', 'moving', 3, 1, '\x7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eaf2-7a5d-8402-303b1ff48418', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.562676+00', '2026-11-15 22:40:56.566118+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e15e-eaf8-7820-9f16-0325a5ad3e8c', 'office.parcel.events', 'parcel.posted', 'parcel', 'moving', 4, 1, '\x7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eaf8-7820-9f16-0325a5ad3e8c', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.568831+00', '2026-11-15 22:40:56.570853+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e15e-eafc-7ead-b335-5e3f8ba96224', 'office.parcel.events', 'parcel.posted', 'parcel', 'waiting', 3, 1, '\x7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eafc-7ead-b335-5e3f8ba96224', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.572791+00', '2026-11-15 22:40:56.574122+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e15e-eb01-7959-8a8d-b8b9bc8bef3b', 'office.parcel.events', 'parcel.posted', 'parcel', 'waiting', 4, 1, '\x7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eb01-7959-8a8d-b8b9bc8bef3b', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.577533+00', '2026-11-15 22:40:56.579271+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e15e-eb05-70c8-955e-59b8be1787e8', 'office.parcel.events', 'parcel.posted', 'parcel', 'worn', 3, 1, '\x7b2270617263656c223a22776f726e222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eb05-70c8-955e-59b8be1787e8', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.581539+00', '2026-11-15 22:40:56.58321+00', NULL);
INSERT INTO public.postroad_facts VALUES ('01a1e15e-eb08-7cbb-a680-2159d7bf542f', 'office.parcel.events', 'parcel.posted', 'parcel', 'worn', 4, 1, '\x7b2270617263656c223a22776f726e222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eb08-7cbb-a680-2159d7bf542f', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.584819+00', '2026-11-15 22:40:56.586773+00', NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e15e-eaf8-7820-9f16-0325a5ad3e8c', 4, 'parcel/moving', 111, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e15e-eb01-7959-8a8d-b8b9bc8bef3b', 4, 'parcel/waiting', 165, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e15e-eb08-7cbb-a680-2159d7bf542f', 4, 'parcel/worn', 255, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e15e-eaf2-7a5d-8402-303b1ff48418', 3, 'parcel/moving', 111, 'SENT', 0, NULL, NULL, '2000-01-01 00:00:00+00');
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e15e-eafc-7ead-b335-5e3f8ba96224', 3, 'parcel/waiting', 165, 'RETRY', 1, '2000-01-01 00:00:00+00', 'no', NULL);
INSERT INTO public.postroad_facts_delivery VALUES ('01a1e15e-eb05-70c8-955e-59b8be1787e8', 3, 'parcel/worn', 255, 'FAILED', 5, '2000-01-01 00:00:00+00', 'no', NULL);
INSERT INTO public.postroad_migration VALUES ('0001_core', '', '2026-11-15 22:40:56.467126+00');
INSERT INTO public.postroad_migration VALUES ('0002_outbox_append_only', 'postroad_facts', '2026-11-15 22:40:56.480485+00');
INSERT INTO public.postroad_migration VALUES ('0002_outbox_in_row', 'postroad_outbox', '2026-11-15 22:40:56.488305+00');
INSERT INTO public.postroad_migration VALUES ('0003_outbox_routines', 'postroad_outbox', '2026-11-15 22:40:56.501329+00');
INSERT INTO public.postroad_migration VALUES ('0003_outbox_routines', 'postroad_facts', '2026-11-15 22:40:56.509946+00');
INSERT INTO public.postroad_outbox VALUES ('01a1e15e-eacb-7546-9f91-13af1944e213', 'office.parcel.events', 'parcel.posted', 'parcel', 'moving', 2, 1, '\x7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eacb-7546-9f91-13af1944e213', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.523323+00', '2026-11-15 22:40:56.524942+00', NULL, 'parcel/moving', 111, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_outbox VALUES ('01a1e15e-ead6-7866-9928-63a9831be5cc', 'office.parcel.events', 'parcel.posted', 'parcel', 'waiting', 2, 1, '\x7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-ead6-7866-9928-63a9831be5cc', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.534927+00', '2026-11-15 22:40:56.536583+00', NULL, 'parcel/waiting', 165, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_outbox VALUES ('01a1e15e-eade-73ca-957c-c797a131dc8a', 'office.parcel.events', 'parcel.posted', 'parcel', 'worn', 2, 1, '\x7b2270617263656c223a22776f726e222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eade-73ca-957c-c797a131dc8a', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.542507+00', '2026-11-15 22:40:56.544481+00', NULL, 'parcel/worn', 255, 'NEW', 0, NULL, NULL, NULL);
INSERT INTO public.postroad_outbox VALUES ('01a1e15e-eac0-765c-b5e5-acd35c6c55ee', 'office.parcel.events', 'parcel.posted', 'parcel', 'moving', 1, 1, '\x7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eac0-765c-b5e5-acd35c6c55ee', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.51281+00', '2026-11-15 22:40:56.519302+00', NULL, 'parcel/moving', 111, 'SENT', 0, NULL, NULL, '2000-01-01 00:00:00+00');
INSERT INTO public.postroad_outbox VALUES ('01a1e15e-eacf-7fb8-879d-487d7cad3a8c', 'office.parcel.events', 'parcel.posted', 'parcel', 'waiting', 1, 1, '\x7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eacf-7fb8-879d-487d7cad3a8c', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.527537+00', '2026-11-15 22:40:56.532819+00', NULL, 'parcel/waiting', 165, 'RETRY', 1, '2000-01-01 00:00:00+00', 'no', NULL);
INSERT INTO public.postroad_outbox VALUES ('01a1e15e-eada-7feb-ba9e-5d18a75c816f', 'office.parcel.events', 'parcel.posted', 'parcel', 'worn', 1, 1, '\x7b2270617263656c223a22776f726e222c226e6f7465223a22227d', 'application/json', '', '01a1e15e-eada-7feb-ba9e-5d18a75c816f', NULL, '{"source_service":"office","headers":{"kept":"yes"}}', '2026-11-15 22:40:56.538559+00', '2026-11-15 22:40:56.540061+00', NULL, 'parcel/worn', 255, 'FAILED', 5, '2000-01-01 00:00:00+00', 'no', NULL);
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
