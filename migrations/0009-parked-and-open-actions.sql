-- A page of an aggregate asks for its parked commits, so that it can take them from the log.

create index parked_by_subject on tenants.parked (subject);
create index parked_by_subject on agents.parked (subject);
create index parked_by_subject on sessions.parked (subject);
create index parked_by_subject on artifacts.parked (subject);
-- A process begins with the actions that have not ended, however many have.
create index action_open on sessions.action (tenant, session_id, id)
  where status in ('pending', 'claimed', 'asked', 'uncertain');
