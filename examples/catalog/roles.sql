-- One service, one schema, one role. Run it as an administrator, once or again, in the database of the catalog:
--   psql -d catalog -f roles.sql
-- Each role owns its schema, lands there without saying so, and has no right to anything else.
-- Passwords are not set here: \password catalog_writer, or the database's own IAM.

DO $$
DECLARE service text;
BEGIN
  FOREACH service IN ARRAY ARRAY['catalog_writer', 'catalog_reader'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = service) THEN
      EXECUTE format('CREATE ROLE %I', service);
    END IF;
    EXECUTE format('ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT', service);
    EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', service);
    EXECUTE format('ALTER SCHEMA %I OWNER TO %I', service, service);
    EXECUTE format('REVOKE ALL ON SCHEMA %I FROM PUBLIC', service);
    EXECUTE format('ALTER ROLE %I IN DATABASE %I SET search_path = %I', service, current_database(), service);
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), service);
  END LOOP;
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
END $$;

-- By default everybody may look into it, and in old databases create tables there.
REVOKE ALL ON SCHEMA public FROM PUBLIC;
