-- Who may name what is in a workspace: sandboxes whose files are there, and the sessions that work in them ('': the sandbox
-- itself). A workspace that none of them has any longer is removed from the object store.
create table sandboxes.workspace_use (
  tenant text not null,
  workspace text not null,
  sandbox_id text not null,
  session_id text not null,
  primary key (tenant, workspace, sandbox_id, session_id)
);
