-- A fork lists the artifacts of the sessions that its history begins in.
create index history_artifacts on sessions.history (tenant, session_id) where type = 'artifact.created';
