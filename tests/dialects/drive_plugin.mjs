// Runs Signalbox's plugin as OpenCode would: reads steps as JSON from stdin, prints what came of each, a line each.
// A step with `alone` is begun and not waited for; the last step waits for those.
import { existsSync, writeFileSync } from "node:fs"
import { pathToFileURL } from "node:url"

let input = ""
for await (const piece of process.stdin) input += piece
const { plugin, steps } = JSON.parse(input)
const replies = []
const shown = []
const client = {
  postSessionIdPermissionsPermissionId: async (reply) => replies.push(reply),
  _client: { post: async ({ url, path, body }) => replies.push({ url, path, body }) },
  tui: { showToast: async (toast) => shown.push(toast.body.message) },
}
const module = await import(pathToFileURL(plugin).href)
const hooks = await module.SignalboxPlugin({ client, directory: "/home/dev/project" })
const until = async (holds) => {
  for (const began = Date.now(); !holds() && Date.now() - began < 20000; ) await new Promise((r) => setTimeout(r, 20))
}
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`)
const take = async (step) => {
  const began = Date.now()
  const output = step.output || {}
  try {
    if (step.call === "replies") await until(() => replies.length)
    else if (step.call === "file") await until(() => existsSync(step.path))
    else if (step.call === "shown") await until(() => shown.length)
    else if (step.call === "touch") writeFileSync(step.path, "")
    else await hooks[step.call]?.(step.input, output)
    say({ output, replies, shown, ms: Date.now() - began })
  } catch (problem) {
    say({ error: problem.message, ms: Date.now() - began })
  }
}
const alone = []
for (const step of steps) {
  const taken = take(step)
  if (step.alone) alone.push(taken)
  else await taken
}
await Promise.all(alone)
process.exit(0)
