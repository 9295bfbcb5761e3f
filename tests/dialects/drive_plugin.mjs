// Runs Signalbox's plugin as OpenCode would: reads steps as JSON from stdin, prints what came of each, a line each.
import { pathToFileURL } from "node:url"

let input = ""
for await (const piece of process.stdin) input += piece
const { plugin, steps } = JSON.parse(input)
const replies = []
const client = { postSessionIdPermissionsPermissionId: async (reply) => replies.push(reply) }
const module = await import(pathToFileURL(plugin).href)
const hooks = await module.SignalboxPlugin({ client, directory: "/home/dev/project" })
let open = 0
const fetched = globalThis.fetch
globalThis.fetch = (...given) => {
  open += 1
  return fetched(...given).finally(() => (open -= 1))
}
// Waits until all is told, however slow the server is.
const settled = async () => {
  for (let calm = 0; calm < 20; calm = open ? 0 : calm + 1) await new Promise((r) => setTimeout(r, 25))
}
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`)
for (const step of steps) {
  const began = Date.now()
  const output = step.output || {}
  try {
    if (step.call === "replies") while (!replies.length && Date.now() - began < 20000) await new Promise((r) => setTimeout(r, 20))
    else if (step.call === "settle") await settled()
    else await hooks[step.call]?.(step.input, output)
    say({ output, replies, known: step.call in hooks, ms: Date.now() - began })
  } catch (problem) {
    say({ error: problem.message, ms: Date.now() - began })
  }
}
process.exit(0)
