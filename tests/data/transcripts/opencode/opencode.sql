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
INSERT INTO session VALUES ('ses_dfcfc85bbffeuBFhuA51vbOZKA', 'global', NULL, NULL, 'nimble-orchid', '/home/dev/project', '', 'List the folder', '1.18.33', NULL, 0, 0, 0, NULL, NULL, 0.0, 2406, 86, 0, 1600, 0, NULL, '[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]', 'build', '{"id":"m","providerID":"x","variant":"default"}', 1795346889284, 1795346908514, NULL, NULL);
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO message VALUES ('msg_203037ba2001k7Fi2z0hb4ekeR', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346889634, 1795346908276, '{"role":"user","time":{"created":1795346889634},"agent":"build","model":{"providerID":"x","modelID":"m"},"summary":{"diffs":[{"file":"o.txt","patch":"Index: o.txt\n===================================================================\n--- o.txt\t\n+++ o.txt\t\n@@ -0,0 +1,1 @@\n+hi\n\\ No newline at end of file\n","additions":1,"deletions":0,"status":"added"}]}}');
INSERT INTO message VALUES ('msg_203039269001GprM5dXIH6mCxM', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346895465, 1795346904400, '{"parentID":"msg_203037ba2001k7Fi2z0hb4ekeR","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1020,"input":600,"output":20,"reasoning":0,"cache":{"write":0,"read":400}},"modelID":"m","providerID":"x","time":{"created":1795346895465,"completed":1795346904398},"finish":"tool-calls"}');
INSERT INTO message VALUES ('msg_20303b556001aGipJwgTZmfLeS', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346904406, 1795346905876, '{"parentID":"msg_203037ba2001k7Fi2z0hb4ekeR","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1022,"input":601,"output":21,"reasoning":0,"cache":{"write":0,"read":400}},"modelID":"m","providerID":"x","time":{"created":1795346904406,"completed":1795346905861},"finish":"tool-calls"}');
INSERT INTO message VALUES ('msg_20303bb1c001VVYcUTbZ4FdCBd', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346905884, 1795346907646, '{"parentID":"msg_203037ba2001k7Fi2z0hb4ekeR","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1024,"input":602,"output":22,"reasoning":0,"cache":{"write":0,"read":400}},"modelID":"m","providerID":"x","time":{"created":1795346905884,"completed":1795346907644},"finish":"tool-calls"}');
INSERT INTO message VALUES ('msg_20303c2010017CWOu8bCwzgkR2', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346907649, 1795346908409, '{"parentID":"msg_203037ba2001k7Fi2z0hb4ekeR","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/home/dev/project","root":"/home/dev/project"},"cost":0,"tokens":{"total":1026,"input":603,"output":23,"reasoning":0,"cache":{"write":0,"read":400}},"modelID":"m","providerID":"x","time":{"created":1795346907649,"completed":1795346908408},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO part VALUES ('prt_203037cf4001nARVUu3DmCslWN', 'msg_203037ba2001k7Fi2z0hb4ekeR', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346895321, 1795346895324, '{"type":"text","text":"\"please look around and write hi\""}');
INSERT INTO part VALUES ('prt_20303af72001CVGJ01lm6vueJE', 'msg_203039269001GprM5dXIH6mCxM', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346902899, 1795346902905, '{"snapshot":"7c3eef43452d499778446a73c339cfbecbcba9d4","type":"step-start"}');
INSERT INTO part VALUES ('prt_20303af80001WMvJH7fYbmAs99', 'msg_203039269001GprM5dXIH6mCxM', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346902912, 1795346903116, '{"type":"text","text":"I look. ","time":{"start":1795346902912,"end":1795346903102}}');
INSERT INTO part VALUES ('prt_20303afa2001xKkHm8DVuVjNf1', 'msg_203039269001GprM5dXIH6mCxM', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346902946, 1795346903760, '{"type":"tool","tool":"bash","callID":"call_0_1795346902881584","state":{"status":"completed","input":{"command":"ls -la","description":"List files"},"output":"total 16\ndrwxr-xr-x  3 root root 4096 Nov 22 11:27 .\ndrwxr-xr-x 11 root root 4096 Nov 22 11:28 ..\ndrwxr-xr-x  7 root root 4096 Nov 22 11:09 .git\n-rw-r--r--  1 root root    2 Nov 22 11:27 g.txt\n","metadata":{"output":"total 16\ndrwxr-xr-x  3 root root 4096 Nov 22 11:27 .\ndrwxr-xr-x 11 root root 4096 Nov 22 11:28 ..\ndrwxr-xr-x  7 root root 4096 Nov 22 11:09 .git\n-rw-r--r--  1 root root    2 Nov 22 11:27 g.txt\n","exit":0,"truncated":false},"title":"ls -la","time":{"start":1795346903033,"end":1795346903750}}}');
INSERT INTO part VALUES ('prt_20303b41f001C0UsnCJ7fdB06G', 'msg_203039269001GprM5dXIH6mCxM', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346904096, 1795346904097, '{"reason":"tool-calls","snapshot":"7c3eef43452d499778446a73c339cfbecbcba9d4","type":"step-finish","tokens":{"total":1020,"input":600,"output":20,"reasoning":0,"cache":{"write":0,"read":400}},"cost":0}');
INSERT INTO part VALUES ('prt_20303b76d0016c1kh6DgYgTAmh', 'msg_20303b556001aGipJwgTZmfLeS', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346904941, 1795346904948, '{"snapshot":"7c3eef43452d499778446a73c339cfbecbcba9d4","type":"step-start"}');
INSERT INTO part VALUES ('prt_20303b778001MfBptHvaUoqj31', 'msg_20303b556001aGipJwgTZmfLeS', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346904952, 1795346905133, '{"type":"tool","tool":"write","callID":"call_1_1795346904938939","state":{"status":"completed","input":{"filePath":"o.txt","content":"hi"},"output":"Wrote file successfully.","metadata":{"diagnostics":{},"filepath":"/home/dev/project/o.txt","exists":false,"truncated":false},"title":"o.txt","time":{"start":1795346904976,"end":1795346905132}}}');
INSERT INTO part VALUES ('prt_20303b955001BEx6x9KMmo1ODi', 'msg_20303b556001aGipJwgTZmfLeS', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346905429, 1795346905438, '{"reason":"tool-calls","snapshot":"8e289ce346f7ff38533ec7a039c81cb7f5909d08","type":"step-finish","tokens":{"total":1022,"input":601,"output":21,"reasoning":0,"cache":{"write":0,"read":400}},"cost":0}');
INSERT INTO part VALUES ('prt_20303baf3001yEAeHtzoSc26Ol', 'msg_20303b556001aGipJwgTZmfLeS', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346905844, 1795346905851, '{"type":"patch","hash":"7c3eef43452d499778446a73c339cfbecbcba9d4","files":["/home/dev/project/o.txt"]}');
INSERT INTO part VALUES ('prt_20303bdc6001B7WTigAEiHdCk3', 'msg_20303bb1c001VVYcUTbZ4FdCBd', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346906566, 1795346906568, '{"snapshot":"8e289ce346f7ff38533ec7a039c81cb7f5909d08","type":"step-start"}');
INSERT INTO part VALUES ('prt_20303bdca0014F0k3vg3UgjdOv', 'msg_20303bb1c001VVYcUTbZ4FdCBd', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346906587, 1795346906756, '{"type":"tool","tool":"read","callID":"call_2_1795346906552213","state":{"status":"error","input":{"filePath":"missing.txt"},"error":"File not found: /home/dev/project/missing.txt\n\nDid you mean one of these?\n/home/dev/project/g.txt","time":{"start":1795346906619,"end":1795346906741}}}');
INSERT INTO part VALUES ('prt_20303c087001iiHO3ovLxiQVys', 'msg_20303bb1c001VVYcUTbZ4FdCBd', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346907272, 1795346907284, '{"reason":"tool-calls","snapshot":"8e289ce346f7ff38533ec7a039c81cb7f5909d08","type":"step-finish","tokens":{"total":1024,"input":602,"output":22,"reasoning":0,"cache":{"write":0,"read":400}},"cost":0}');
INSERT INTO part VALUES ('prt_20303c3a1001ktxBfYQ74tKX5z', 'msg_20303c2010017CWOu8bCwzgkR2', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346908065, 1795346908074, '{"snapshot":"8e289ce346f7ff38533ec7a039c81cb7f5909d08","type":"step-start"}');
INSERT INTO part VALUES ('prt_20303c3b0001kB1ac4ae1NWJHn', 'msg_20303c2010017CWOu8bCwzgkR2', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346908086, 1795346908108, '{"type":"text","text":"All done.","time":{"start":1795346908080,"end":1795346908107}}');
INSERT INTO part VALUES ('prt_20303c49e001TDZ52Ol9T1prYL', 'msg_20303c2010017CWOu8bCwzgkR2', 'ses_dfcfc85bbffeuBFhuA51vbOZKA', 1795346908319, 1795346908320, '{"reason":"stop","snapshot":"8e289ce346f7ff38533ec7a039c81cb7f5909d08","type":"step-finish","tokens":{"total":1026,"input":603,"output":23,"reasoning":0,"cache":{"write":0,"read":400}},"cost":0}');
