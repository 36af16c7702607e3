-- What the other tests left behind does not keep the extension from going
SET client_min_messages = warning;
DROP EXTENSION ttl CASCADE;
SELECT nspname FROM pg_namespace WHERE nspname = 'ttl';
