-- Which schemas of read models there are, and since when each has everything that the log held when it was first filled.
-- Null: it is being filled, and nobody reads from it. Nodes of different versions read from schemas of their own.
create table public.read_model (schema text primary key, built_at timestamptz);

-- An installation that has been in use has filled these; in a new one the projectors say so.
insert into public.read_model (schema, built_at)
select schema, case when exists (select from tenants.checkpoint) then now() end
from unnest(array['tenants', 'agents', 'sessions', 'artifacts']) as schema;
