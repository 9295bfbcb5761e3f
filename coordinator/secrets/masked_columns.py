"""Every text column of the database, and whether secrets in it are masked. A new column needs a row here.

Before you write it, ask: can an agent, a runner or another program put its own words there? If so it is MASKED where
the action writes it, unless somebody needs the words as they were: then say who, and mask them where they are shown.
tests/secrets/test_columns.py holds this to the models, and sends secrets through the doors.
"""

from __future__ import annotations

MASKED = "masked before it is stored"
SHOWN_MASKED = (
    "stored as it was said for whoever acts by it; masked on pages, exports and for keys that only read"
)
NAMES = "ids, names, words and times by which rows are found and joined: a mask would lose them"
OURS = "written by Signalbox itself, or a digest"
PEOPLE = "written by signed-in people or operators' keys, and acted on as it stands"
CREDENTIAL = "a secret itself; masked wherever it is shown (coordinator.secrets)"

COLUMNS: dict[str, dict[str, str]] = {
    "ActivityHour": {NAMES: "agent_name tool_name"},
    "Agent": {NAMES: "id name default_engine_id status", PEOPLE: "description metadata required_capabilities",
              OURS: "power_password_hash"},
    "AgentName": {NAMES: "name linked_by"},
    "AgentPlugin": {NAMES: "plugin_id"},
    "AgentToolListing": {NAMES: "agent_id listed tools changed_by"},
    "ApiKey": {NAMES: "name agent_id agent_ids created_by", OURS: "prefix key_hash scopes"},
    "ArchivedSession": {NAMES: "archived_by"},
    "AuditCheckpoint": {OURS: "note"},
    "AuditDelivery": {OURS: "place error"},
    "AuditKey": {OURS: "verifier"},
    "AuditLog": {MASKED: "reason metadata", NAMES: "actor_id target_id permission", OURS: "event_type result trace_id"},
    "Blueprint": {SHOWN_MASKED: "description system_prompt mcp_servers skills",
                  NAMES: "name type tags capabilities demands parameters_schema status"},
    "Brake": {NAMES: "name reach set_by released_by", PEOPLE: "reason"},
    "Budget": {NAMES: "reach name span measure at_limit changed_by allowed_by"},
    "BudgetMark": {OURS: "about"},
    "Callback": {MASKED: "text", NAMES: "child_run_id child_session_id parent_session_id delivered_run_id"},
    "Capability": {SHOWN_MASKED: "description text mcp_servers", NAMES: "name type script"},
    "Change": {NAMES: "topic key parent op"},
    "ChatAttachment": {NAMES: "id filename mime_type storage_type disk_path"},
    "ChatBranch": {NAMES: "parent_id"},
    "CacheGeneration": {NAMES: "server_id"},
    "CachedResult": {NAMES: "server_id tool_name agent_id", OURS: "key scope content"},  # sealed
    "ChatMessage": {SHOWN_MASKED: "content metadata", NAMES: "id user_id source"},  # an agent's own: masked
    "ConnectCode": {NAMES: "key_name agent_id used_from", OURS: "code_hash"},
    "DecidingRule": {NAMES: "permission_type tool server agent host groups people changed_by"},
    "DeletedAgent": {NAMES: "agent_id"},
    "Delegation": {NAMES: "made_by revoked_by", PEOPLE: "reason"},
    "DismissedHint": {OURS: "name"},
    "Draft": {SHOWN_MASKED: "text blocks", NAMES: "kind message_id began_at"},  # masked when it is an event
    "DrivenCall": {SHOWN_MASKED: "told output", NAMES: "call_id began_at"},  # likewise; gone when the turn has ended
    "DrivenCommand": {PEOPLE: "command", NAMES: "command_id runner_id ordered_by", MASKED: "error"},
    "DrivenSession": {MASKED: "plan",
                      NAMES: "runner_id run_id agent agent_session_id agent_info capabilities mode mode_choices "
                             "model model_choices config_options commands usage worktree"},
    "DangerMark": {NAMES: "tool changed_by", OURS: "grade", PEOPLE: "pattern reason"},
    "Escalation": {NAMES: "request"},
    "EscalationStep": {NAMES: "person created_by"},
    "DismissedSuggestion": {OURS: "digest", PEOPLE: "label", NAMES: "dismissed_by"},
    "Event": {MASKED: "tool_input tool_output error reason content", NAMES: "event_type timestamp tool_name role"},
    "EventContext": {MASKED: "extra", NAMES: "session_id run_id tool_use_id subagent prompt_id model source"},
    "EventOrigin": {OURS: "key"},
    "GatewayCall": {NAMES: "call_id request_id agent_id server_id tool_name session_id gateway_session state",
                    OURS: "call_key arguments_digest definition_digest policy_version worker",
                    CREDENTIAL: "message result"},  # sealed
    "GatewayFigures": {NAMES: "server_id tool_name outcome", OURS: "upstream own"},
    "GatewayLink": {NAMES: "session_id server_id protocol_version", CREDENTIAL: "upstream_session"},  # sealed
    "GatewaySession": {NAMES: "session_id door agent_id protocol_version client capabilities"},
    "Grant": {NAMES: "entry_type agent_id server_id tool_name permission granted_by", PEOPLE: "justification metadata"},
    "HeldRun": {OURS: "why"},
    "IdempotencyKey": {OURS: "key_hash fingerprint answer"},
    "InstallationSetting": {NAMES: "name value changed_by"},
    "Invitation": {OURS: "token_hash role", PEOPLE: "label"},
    "Job": {OURS: "name leased_by", NAMES: "subject", MASKED: "error"},
    "KeyStorageDay": {OURS: "day"},
    "KnownHost": {MASKED: "folder host", NAMES: "request_id approved_by"},
    "LivingExecutor": {NAMES: "runner_id run_id"},
    "McpAccessToken": {NAMES: "server_id", OURS: "scopes problem", CREDENTIAL: "access_token refresh_token"},  # sealed
    "McpAgentPerson": {NAMES: "agent_id changed_by"},
    "McpAuthorization": {NAMES: "server_id mode changed_by", PEOPLE: "server_url scopes",
                         OURS: "endpoints client_id client_auth registered_for", CREDENTIAL: "client_secret"},  # sealed
    "McpCallLimit": {NAMES: "server_id tool_name changed_by"},
    "McpCallRate": {NAMES: "server_id tool_name"},
    "McpCircuitBreaker": {NAMES: "server_id", MASKED: "last_problem"},
    "McpCredential": {NAMES: "kind name set_by", OURS: "value"},  # sealed, or the name of a variable
    "McpHostLearning": {NAMES: "server_id"},
    "McpProcess": {NAMES: "server_id caller", MASKED: "last_words", OURS: "state"},
    "McpResultHost": {NAMES: "server_id session_id", MASKED: "host"},
    "McpResultMark": {NAMES: "session_id server_id", OURS: "marks"},
    "McpServer": {NAMES: "name default_policy", CREDENTIAL: "command args", PEOPLE: "script_content description"},
    "McpTool": {NAMES: "server_id name title accepted_by declined_by short_by",
                OURS: "definition_hash accepted_hash declined_hash short_for",
                PEOPLE: "short_description description input_schema output_schema annotations accepted"},
    "McpToolRevision": {NAMES: "server_id tool_name kind changed_by", OURS: "definition_hash", PEOPLE: "definition"},
    "McpUpstream": {
        NAMES: "server_id transport sharing network",
        PEOPLE: "url folders writable_folders",
        OURS: "accepted_command",
    },
    "MessagePart": {SHOWN_MASKED: "text", NAMES: "message_id"},  # shown nowhere; masked when it is whole, or given up
    "ModelRequestUsage": {OURS: "request_key day source", NAMES: "session_id subagent model provider"},
    "ModelPrice": {NAMES: "model changed_by"},
    "Note": {PEOPLE: "text", NAMES: "written_by given_to run_id", OURS: "through why_closed"},
    "Notification": {NAMES: "request_id state event", OURS: "outcome"},
    "NotificationChoice": {NAMES: "person"},
    "NotificationTarget": {NAMES: "person kind name about", PEOPLE: "patterns", OURS: "shown",
                           CREDENTIAL: "address secret"},  # sealed at services; a webhook's proves who sent
    "Passkey": {NAMES: "credential_id user_handle rp_id", PEOPLE: "name", OURS: "public_key"},
    "PasskeyChallenge": {NAMES: "source", OURS: "digest purpose browser"},
    "PermissionContext": {MASKED: "tool_name tool_input folder reason answer",
                          NAMES: "requested_by owner session_id agent_id host validity scope closed_by revoked_by "
                                 "used_by waited_by decided_for",
                          OURS: "subject_key pending_key idempotency_key cover_key repeat_key",
                          PEOPLE: "revoke_reason seen_by"},
    "PermissionRequest": {MASKED: "plugin_id permission_type target_resource justification metadata",
                          NAMES: "request_id status approved_by"},
    "PermissionVote": {NAMES: "voter right_of validity scope", OURS: "judged", PEOPLE: "reason"},
    "PluginConfig": {NAMES: "plugin_id config_key", CREDENTIAL: "config_value"},
    "PluginData": {NAMES: "plugin_id key", CREDENTIAL: "value"},
    "PluginSetting": {NAMES: "plugin_id allowed_permissions"},
    "ProviderIdentity": {NAMES: "issuer subject"},
    "PushKey": {OURS: "public_key", CREDENTIAL: "private_key"},  # sealed
    "PushSubscription": {PEOPLE: "device", CREDENTIAL: "keys", OURS: "sign_in why_ended"},  # keys: sealed
    "QuietHours": {NAMES: "person zone begins ends"},
    "ReadMark": {NAMES: "person agent_id message_id"},
    "RecoveryCode": {OURS: "code_hash"},
    "RequestAssignment": {NAMES: "person assigned_by"},
    "RequestSnooze": {NAMES: "person"},
    "RevokedKey": {OURS: "key_hash"},
    "Run": {SHOWN_MASKED: "prompt", MASKED: "error",  # the prompt of a run that has ended is masked, too
            NAMES: "run_id type agent_name project_dir parent_session_id execution_mode demands status runner_id"},
    "RunParameters": {SHOWN_MASKED: "parameters"},  # as the prompt
    "Runner": {NAMES: "runner_id hostname project_dir executor_profile executor tags registered_by extra"},
    "RunnerOffers": {NAMES: "offers"},
    "RuntimePlugin": {NAMES: "plugin_id script_name permissions created_by", PEOPLE: "description code_content"},
    "SavedSessionView": {PEOPLE: "name query"},
    "Session": {MASKED: "project_dir hostname",  # as hooks report them; a runner's folder must stay one
                NAMES: "session_id status agent_name executor_session_id executor_profile"},
    "SessionChange": {MASKED: "files diff problem", NAMES: "run_id base"},
    "SessionFigures": {NAMES: "person"},
    "SessionGuard": {NAMES: "mode"},
    "SessionKey": {OURS: "key_hash", NAMES: "session_id agent_id runner_id"},
    "SessionListChoice": {OURS: "columns"},
    "SessionOwner": {NAMES: "person"},
    "SessionTag": {PEOPLE: "tag", NAMES: "tagged_by"},
    "SessionTitle": {MASKED: "title", NAMES: "set_by", OURS: "source"},
    "SessionWriter": {NAMES: "writer"},
    "SetupToken": {OURS: "token_hash"},
    "StopCommand": {NAMES: "runner_id run_id session_id"},
    "StoredResult": {NAMES: "id server_id tool_name agent_id", OURS: "content arguments"},  # sealed
    "StoredFile": {OURS: "place sha256 proven"},
    "ToolCollection": {NAMES: "name tools changed_by", PEOPLE: "description"},
    "ToolRule": {
        NAMES: "verdict agents program unreadable ready_made changed_by",
        PEOPLE: "tool pattern reason runs touches reaches repeats",
    },
    "SubscriptionLimit": {NAMES: "program host name"},
    "TelemetryOmission": {NAMES: "sender kind", MASKED: "service library name"},
    "TranscriptProblem": {MASKED: "file reason"},
    "TranscriptSender": {NAMES: "hostname program sender"},
    "UsageDay": {NAMES: "day session_id model agent program person hostname project_dir"},
}  # fmt: skip
