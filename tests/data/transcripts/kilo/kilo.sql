CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO session VALUES ('ses_de6db13beffeM5llKhyZo1JmR6', 'global', NULL, NULL, 'curious-knight', '/home/dev/project', '', 'Done.', '7.7.9', NULL, 1, 0, 1, NULL, NULL, 0.0, 21, 21, 0, 0, 0, NULL, '[{"permission":"question","pattern":"*","action":"deny"},{"permission":"suggest","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]', 'code', '{"id":"scripted","providerID":"scripted","variant":"default"}', 1795718179905, 1795718192597, NULL, NULL);
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO message VALUES ('msg_21925145c001yh1795IUuG7cMK', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718190172, 1795718192607, '{"role":"user","time":{"created":1795718190172},"agent":"code","model":{"providerID":"scripted","modelID":"scripted"},"summary":{"diffs":[{"file":"one","patch":"diff --git a/one b/one\nnew file mode 100644\nindex 0000000..5626abf\n--- /dev/null\n+++ b/one\n@@ -0,0 +1 @@\n+one\n","additions":1,"deletions":0,"status":"added"}]}}');
INSERT INTO message VALUES ('msg_2192514af001KSLzrMHO3duRIy', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718190255, 1795718191484, '{"parentID":"msg_21925145c001yh1795IUuG7cMK","role":"assistant","mode":"code","agent":"code","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":14,"input":7,"output":7,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted","providerID":"scripted","time":{"created":1795718190255,"completed":1795718191483},"finish":"tool-calls"}');
INSERT INTO message VALUES ('msg_219251983001DG49UrVzQd9f7x', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718191491, 1795718191894, '{"parentID":"msg_21925145c001yh1795IUuG7cMK","role":"assistant","mode":"code","agent":"code","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":14,"input":7,"output":7,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted","providerID":"scripted","time":{"created":1795718191491,"completed":1795718191892},"finish":"tool-calls"}');
INSERT INTO message VALUES ('msg_219251b19001Iq1TfVhI8qtK7T', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718191897, 1795718192338, '{"parentID":"msg_21925145c001yh1795IUuG7cMK","role":"assistant","mode":"code","agent":"code","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":14,"input":7,"output":7,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted","providerID":"scripted","time":{"created":1795718191897,"completed":1795718192337},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO part VALUES ('prt_21925146f001tYD6GanmYyeRnp', 'msg_21925145c001yh1795IUuG7cMK', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718190195, 1795718190196, '{"type":"text","text":"\"Do as the script says.\""}');
INSERT INTO part VALUES ('prt_219251678001wwn3WxxuyaG4iw', 'msg_2192514af001KSLzrMHO3duRIy', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718190713, 1795718190714, '{"snapshot":"eea8fc2805f9275841541d7a3c76f63d51c94b5f","type":"step-start","time":{"start":1795718190712}}');
INSERT INTO part VALUES ('prt_21925167c001mgyyarCT2mrGac', 'msg_2192514af001KSLzrMHO3duRIy', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718190716, 1795718191124, '{"type":"tool","tool":"bash","callID":"call_0","state":{"status":"completed","input":{"command":"echo one > one","description":"As asked"},"output":"(no output)","metadata":{"output":"(no output)","exit":0,"description":"As asked","truncated":false,"approval":{"source":"global","rule":{"permission":"bash","pattern":"*","action":"allow"}}},"title":"As asked","time":{"start":1795718190734,"end":1795718191117}}}');
INSERT INTO part VALUES ('prt_219251917001voZtiD62t08mua', 'msg_2192514af001KSLzrMHO3duRIy', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718191383, 1795718191385, '{"reason":"tool-calls","snapshot":"ff5483c325d4a512e75329b893b3e48b76b40197","type":"step-finish","time":{"start":1795718190712,"end":1795718191381,"elapsed":669},"metrics":{"generation":10.46337817638266,"source":"computed"},"tokens":{"total":14,"input":7,"output":7,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO part VALUES ('prt_219251975001bWKaAzzoVNc05L', 'msg_2192514af001KSLzrMHO3duRIy', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718191477, 1795718191478, '{"type":"patch","hash":"eea8fc2805f9275841541d7a3c76f63d51c94b5f","files":["/home/dev/project/one"]}');
INSERT INTO part VALUES ('prt_219251a27001nCfWed4TxW34gk', 'msg_219251983001DG49UrVzQd9f7x', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718191655, 1795718191657, '{"snapshot":"ff5483c325d4a512e75329b893b3e48b76b40197","type":"step-start","time":{"start":1795718191655}}');
INSERT INTO part VALUES ('prt_219251a2a001BzjSOBSV06qUnR', 'msg_219251983001DG49UrVzQd9f7x', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718191658, 1795718191725, '{"type":"tool","tool":"bash","callID":"call_1","state":{"status":"completed","input":{"command":"exit 3","description":"As asked"},"output":"(no output)","metadata":{"output":"(no output)","exit":3,"description":"As asked","truncated":false,"approval":{"source":"global","rule":{"permission":"bash","pattern":"*","action":"allow"}}},"title":"As asked","time":{"start":1795718191662,"end":1795718191724}}}');
INSERT INTO part VALUES ('prt_219251ae90016bac9C4ArT2Axr', 'msg_219251983001DG49UrVzQd9f7x', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718191849, 1795718191855, '{"reason":"tool-calls","snapshot":"ff5483c325d4a512e75329b893b3e48b76b40197","type":"step-finish","time":{"start":1795718191655,"end":1795718191848,"elapsed":193},"metrics":{"generation":36.26943005181347,"source":"computed"},"tokens":{"total":14,"input":7,"output":7,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO part VALUES ('prt_219251bf4001Wtvg7hWqZMtujV', 'msg_219251b19001Iq1TfVhI8qtK7T', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718192116, 1795718192117, '{"snapshot":"ff5483c325d4a512e75329b893b3e48b76b40197","type":"step-start","time":{"start":1795718192116}}');
INSERT INTO part VALUES ('prt_219251bfb001wpQluBc9y7dz8W', 'msg_219251b19001Iq1TfVhI8qtK7T', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718192124, 1795718192127, '{"type":"text","text":"Done.","time":{"start":1795718192124,"end":1795718192127}}');
INSERT INTO part VALUES ('prt_219251c790015DIzMwgz6drsXo', 'msg_219251b19001Iq1TfVhI8qtK7T', 'ses_de6db13beffeM5llKhyZo1JmR6', 1795718192251, 1795718192252, '{"reason":"stop","snapshot":"ff5483c325d4a512e75329b893b3e48b76b40197","type":"step-finish","time":{"start":1795718192116,"end":1795718192248,"elapsed":132},"metrics":{"generation":53.03030303030303,"source":"computed"},"tokens":{"total":14,"input":7,"output":7,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
