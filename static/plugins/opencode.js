// Signalbox's plugin for OpenCode: tells a server what happens in its sessions, and holds calls until they are decided.
//
// Put it into ~/.config/opencode/plugins/ (or a project's .opencode/plugins/) and start OpenCode again. It finds its
// server by the file that `signalbox connect` wrote, else by SIGNALBOX_URL and SIGNALBOX_KEY: OpenCode reads a project's
// .env, which must not choose another server. In that file,
// `agents.opencode.hold` false lets calls run while the server was never reached; by default they are denied then. Once
// it was reached, it says itself which tools' calls must not run without it. That is kept in a file for OpenCode's next
// start, the same as `signalbox hook` keeps (coordinator/client/held.py), which only its owner can read.
//
// It exports one function: OpenCode takes each export for a plugin.
//
// Tried with OpenCode 1.18.33. Its type for plugins has a function `permission.ask` that this version never calls, so
// a permission that OpenCode asks its own person for is answered when it tells that it asks (`permission.asked`).

import { createHash, randomUUID } from "node:crypto"
import { closeSync, constants, mkdirSync, openSync, readFileSync, readSync } from "node:fs"
import { renameSync, rmSync, statSync, writeSync } from "node:fs"
import { homedir, hostname } from "node:os"
import { dirname, isAbsolute, join } from "node:path"

const NAME = "opencode"
const CONNECTED_FILE = "" // `signalbox connect` puts the path of its file here, so that no variable chooses another
const WAIT = 600 // seconds that a call waits for a person
const BEYOND = 15 // seconds more until we give up waiting for the answer
const AWAY = 500 // milliseconds without an answer after which we look whether the server is there at all
const SILENT = 20_000 // milliseconds without a sign of life after which a waiting line is dead
const TRY_FOR = 8_000 // milliseconds for which a held call is put again to a server that went away
const MOST_KEPT = 1000 // hooks kept in memory while the server is away; then the oldest go
const LAST_WORDS = 1500 // milliseconds for what is not told yet, at the end
const MOST_HELD = 1 << 16 // bytes of the file that says which tools are held
const EVERYTHING = [["hold", "*"]]
const TOLD = new Set([
  "session.created",
  "session.deleted",
  "session.idle",
  "session.error",
  "session.compacted",
])

class NotConnected extends Error {}

// Returns {url, key, hold, wait}, or null where nobody has connected anything. Throws NotConnected with what to mend.
function settingsOf(environment) {
  const trimmed = (text) => (typeof text === "string" ? text.trim().replace(/\/+$/, "") : "")
  const stored = storedIn(environment)
  const url = trimmed(stored ? stored.url : environment.SIGNALBOX_URL)
  const key = trimmed(stored ? stored.key : environment.SIGNALBOX_KEY)
  if (!url && !stored) return null
  if (!/^https?:\/\//.test(url)) throw new NotConnected("Signalbox's address must begin with http:// or https://.")
  const ours = (stored && stored.agents && stored.agents[NAME]) || {}
  const wait = Number.isFinite(ours.wait) && ours.wait > 0 ? ours.wait : WAIT
  const usual = CONNECTED_FILE ? (stored && stored.environment) || {} : environment
  return { url, key, hold: ours.hold !== false, wait, heldIn: heldIn(usual, url, key) }
}

function folderIn(environment, variable, belowHome) {
  const named = environment[variable]
  return named && isAbsolute(named) ? named : join(environment.HOME || homedir(), belowHome)
}

// Another server, or another key, has another folder.
function heldIn(environment, url, key) {
  const knownAs = createHash("sha256").update(`${url}\n${key}`).digest("hex").slice(0, 16)
  const state = folderIn(environment, "XDG_STATE_HOME", join(".local", "state"))
  return join(state, "signalbox", knownAs, `held-${NAME}.json`)
}

function storedIn(environment) {
  const usual = () => join(folderIn(environment, "XDG_CONFIG_HOME", ".config"), "signalbox", "client.json")
  const path = CONNECTED_FILE || usual()
  let text
  try {
    if (process.platform !== "win32" && statSync(path).mode & 0o077) {
      throw new NotConnected(`${path} holds a key and can be read by others: run \`chmod 600 ${path}\`.`)
    }
    text = readFileSync(path, "utf8")
  } catch (problem) {
    if (problem.code === "ENOENT" && !CONNECTED_FILE) return null
    throw problem instanceof NotConnected ? problem : new NotConnected(`${path} cannot be read.`)
  }
  try {
    const value = JSON.parse(text)
    if (value && typeof value.url === "string") return value
  } catch {
    // said below
  }
  throw new NotConnected(`${path} cannot be understood. Run \`signalbox connect\` again.`)
}

// Returns which tools a text says are held: pairs of `hold` or `free` and tool names. Null where it says none of that.
function heldBy(text) {
  try {
    const lines = JSON.parse(text)
    const isLine = (line) =>
      Array.isArray(line) && line.length === 2 && ["hold", "free"].includes(line[0]) && typeof line[1] === "string"
    return Array.isArray(lines) && lines.every(isLine) ? lines : null
  } catch {
    return null
  }
}

// Returns what was kept, null where nothing was. What cannot be read holds everything.
function keptHeld(path) {
  let file
  try {
    file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK || 0))
    const bytes = Buffer.alloc(MOST_HELD)
    return heldBy(bytes.toString("utf8", 0, readSync(file, bytes, 0, MOST_HELD, 0))) || EVERYTHING
  } catch (problem) {
    return problem.code === "ENOENT" ? null : EVERYTHING
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

// Writes the file whole or not at all, for its owner alone.
function keepHeld(path, lines) {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  const aside = `${path}.${process.pid}`
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants
  const file = openSync(aside, O_WRONLY | O_CREAT | O_TRUNC | (O_NOFOLLOW || 0), 0o600)
  try {
    writeSync(file, JSON.stringify(lines))
  } finally {
    closeSync(file)
  }
  try {
    renameSync(aside, path)
  } catch (problem) {
    rmSync(aside, { force: true })
    throw problem
  }
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))

// A server that refuses for good: asking again would not help.
class Refused extends Error {}

// One server, and the hooks that it has not been told yet, in order.
class Server {
  constructor(settings) {
    this.settings = settings
    this.held = keptHeld(settings.heldIn) // which tools are held for certain, as the server said last
    this.kept = []
    this.telling = null
  }

  // Says whether a call of this tool must not run unless somebody lets it.
  holds(tool) {
    if (!this.held) return this.settings.hold
    try {
      const line = this.held.find(([, names]) => namesTool(names, tool))
      return Boolean(line) && line[0] === "hold"
    } catch {
      return true
    }
  }

  // Posts a hook and returns the answer, null for none. `late`: its agent has gone on. Throws whatever goes wrong.
  async post({ id, at, hook, denied }, { wait = 0, late = false, isHeld = true } = {}) {
    const line = new AbortController()
    const deadline = setTimeout(() => line.abort(), (wait + BEYOND) * 1000)
    try {
      const answering = fetch(`${this.settings.url}/hooks/${NAME}?wait=${wait}`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          "x-signalbox-host": encodeURIComponent(hostname()),
          "x-signalbox-hook-id": id,
          ...(process.env.SIGNALBOX_SESSION ? { "x-signalbox-session": process.env.SIGNALBOX_SESSION } : {}),
          ...(late ? { "x-signalbox-age": String(Math.max(0, Date.now() - at) / 1000) } : {}),
          ...(late && denied ? { "x-signalbox-denied": encodeURIComponent(denied.slice(0, 1000)) } : {}),
          ...(this.settings.key ? { authorization: `Bearer ${this.settings.key}` } : {}),
        },
        body: JSON.stringify(hook),
        redirect: "error",
        signal: line.signal,
        timeout: false, // Bun's own, which is shorter than people are
      })
      answering.catch(() => {}) // it is awaited below, or given up
      if (!isHeld && !(await Promise.race([answering, sleep(AWAY)])) && !(await this.isThere())) {
        throw new Error("it does not answer")
      }
      return this.answerIn(await alive(answering), await bodyOf(await answering))
    } finally {
      clearTimeout(deadline)
      line.abort()
    }
  }

  answerIn(response, text) {
    if (!response.ok) {
      const isFinal = response.status >= 400 && response.status < 500 && response.status !== 429
      throw new (isFinal ? Refused : Error)(`it answered ${response.status}: ${text.slice(0, 200)}`)
    }
    this.learn(response.headers.get("x-signalbox-held"))
    if (!text.trim()) return null
    const answer = JSON.parse(text)
    if (answer?.signalbox) throw new Error(`it answered ${answer.signalbox.status}: ${answer.signalbox.detail}`)
    const isNote = answer?.decision === undefined && typeof answer?.note === "string"
    if (!isNote && !["allow", "deny", "ask"].includes(answer?.decision)) throw new Error("its answer cannot be understood")
    return answer
  }

  learn(told) {
    const lines = told ? heldBy(told) : null
    if (!lines || JSON.stringify(lines) === JSON.stringify(this.held)) return
    this.held = lines
    try {
      keepHeld(this.settings.heldIn, lines)
    } catch {
      // it is known until OpenCode ends
    }
  }

  async isThere() {
    try {
      return (await fetch(`${this.settings.url}/health`, { signal: AbortSignal.timeout(AWAY) })).ok
    } catch {
      return false
    }
  }

  // Returns the answer about a call. Throws where it must not run because nobody could be asked.
  async decide(call) {
    const tool = call.hook.tool_name
    const until = Date.now() + this.settings.wait * 1000
    let away = null // since when
    for (;;) {
      try {
        const wait = Math.max(0, Math.ceil((until - Date.now()) / 1000))
        return await this.post(call, { wait, isHeld: this.holds(tool) })
      } catch (problem) {
        away ??= Date.now()
        if (!this.holds(tool)) {
          this.tell(call)
          return null
        }
        const isOver = problem instanceof Refused || Date.now() > Math.min(away + TRY_FOR, until)
        if (!isOver) {
          await sleep(AWAY)
          continue
        }
        const why = `Signalbox must decide this call, but ${problem.message}. The call did not run. Tell your user; try again when it is back.`
        this.tell({ ...call, denied: why })
        throw new Error(why)
      }
    }
  }

  // Has a hook told, soon and in order, once. Never waits, never throws.
  tell(hook) {
    this.kept.push(hook)
    if (this.kept.length > MOST_KEPT) this.kept.shift()
    this.telling ||= this.tellAll().finally(() => {
      this.telling = null
    })
  }

  async tellAll() {
    let pause = AWAY
    while (this.kept.length) {
      const hook = this.kept[0]
      try {
        await this.post(hook, { late: true })
        pause = AWAY
      } catch (problem) {
        if (!(problem instanceof Refused)) {
          await sleep(pause)
          pause = Math.min(2 * pause, 30_000)
          continue
        }
      }
      if (this.kept[0] === hook) this.kept.shift()
    }
  }

  // Waits a moment for what is not told yet.
  async lastWords() {
    if (this.telling) await Promise.race([this.telling, sleep(LAST_WORDS)])
  }
}

// Gives what a promise gives, unless that takes so long that the line must be dead.
async function alive(promise) {
  let timer
  const silence = new Promise((_, refuse) => {
    timer = setTimeout(() => refuse(new Error("it went silent")), SILENT)
  })
  try {
    return await Promise.race([promise, silence])
  } finally {
    clearTimeout(timer)
  }
}

// Returns a response's text. While a person thinks, the server sends blanks: signs of life.
async function bodyOf(response) {
  const reader = response.body?.getReader()
  const decoder = new TextDecoder()
  let text = ""
  while (reader) {
    const { done, value } = await alive(reader.read())
    if (done) break
    text += decoder.decode(value, { stream: true })
  }
  return text
}

// Says whether a rule's tool names, such as `bash|mcp__*`, name this tool. Throws for names that make no pattern.
function namesTool(names, tool) {
  const patterns = names.split(/[|,]/).map((name) => name.trim())
  return patterns.some((name) => Boolean(name) && new RegExp(`^${expressionOf(name)}$`, "s").test(tool))
}

// Shell patterns as the server reads them: `*`, `?`, `[abc]`, `[!abc]`.
function expressionOf(name) {
  return name.replace(/\*+|\?|\[(!?)(\]?[^\]]*)\]|[^]/g, (part, not, signs) => {
    if (part[0] === "*") return ".*"
    if (part === "?") return "."
    if (signs !== undefined) return `[${not ? "^" : ""}${signs.replace(/[\\\]^[]/g, "\\$&")}]`
    return part.replace(/[.+^${}()|[\]\\]/, "\\$&")
  })
}

const words = (parts) =>
  (Array.isArray(parts) ? parts : [])
    .filter((part) => part && part.type === "text" && !part.synthetic && typeof part.text === "string")
    .map((part) => part.text)
    .join("\n")

// Says whether an event is one that Signalbox wants to hear.
function isTold({ type, properties }) {
  if (type === "message.part.updated") {
    const part = properties?.part || {}
    if (part.type === "tool") return ["completed", "error"].includes(part.state?.status)
    return part.type === "text" && Boolean(part.time?.end)
  }
  if (type === "message.updated") return Boolean(properties?.info?.role === "assistant" && properties.info.time?.completed)
  return TOLD.has(type)
}

const sessionOf = (properties) =>
  properties?.sessionID || properties?.part?.sessionID || properties?.info?.sessionID || properties?.info?.id

export const SignalboxPlugin = async ({ client, directory }) => {
  const sessions = new Set()
  const notes = new Map() // what a person wrote to a session's agent, until a result of it carries that
  const allowed = new Set() // calls that Signalbox let run: OpenCode need not ask for them again
  let server = null
  let broken = null
  try {
    const settings = settingsOf(process.env)
    if (!settings) return {}
    server = new Server(settings)
  } catch (problem) {
    broken = problem
  }

  const hook = (name, session, fields) => {
    if (session) sessions.add(session)
    const at = Date.now()
    const told = { hook_event_name: name, session_id: session, cwd: directory, timestamp: new Date(at).toISOString() }
    return { id: randomUUID(), at, hook: { ...told, ...fields } }
  }

  const notesOf = (session, carried = false) => {
    const text = notes.get(session) || ""
    if (carried) notes.delete(session)
    return text
  }

  const answerPermission = async (event) => {
    const { id, sessionID, permission, metadata, patterns, tool } = event.properties || {}
    const reply = async (response) => {
      await client.postSessionIdPermissionsPermissionId({ path: { id: sessionID, permissionID: id }, body: { response } })
    }
    if (tool?.callID && allowed.has(tool.callID)) return reply("once")
    const asked = hook("permission.asked", sessionID, {
      event_id: event.id,
      tool_name: permission,
      tool_input: { ...metadata, patterns },
      tool_use_id: tool?.callID,
    })
    const answer = await server.post(asked, { wait: server.settings.wait })
    if (answer?.decision === "allow") await reply("once")
    if (answer?.decision === "deny") await reply("reject")
  }

  return {
    event: async ({ event }) => {
      if (!server || !event) return
      if (event.type === "permission.asked") {
        answerPermission(event).catch(() => {}) // OpenCode's own prompt stands
      } else if (isTold(event)) {
        const fields = { event_id: event.id, properties: event.properties }
        const session = sessionOf(event.properties)
        if (session) server.tell(hook(event.type, session, fields))
      }
    },
    "chat.message": async (input, output) => {
      if (!server) return
      const fields = { message_id: output?.message?.id, prompt: words(output?.parts) }
      server.tell(hook("chat.message", input?.sessionID, fields))
    },
    "tool.execute.before": async (input, output) => {
      if (broken) throw new Error(`Signalbox holds this call: ${broken.message}`)
      const asked = hook("tool.execute.before", input.sessionID, {
        tool_name: input.tool,
        tool_input: output.args,
        tool_use_id: input.callID,
        takes_notes: true,
      })
      const answer = await server.decide(asked)
      if (!answer) return
      if (typeof answer.note === "string") notes.set(input.sessionID, `${notesOf(input.sessionID)}\n\n${answer.note}`)
      if (answer.decision === undefined) return
      if (answer.decision !== "allow") {
        throw new Error(String(answer.reason || "Denied in Signalbox.") + notesOf(input.sessionID, true))
      }
      allowed.add(input.callID)
      if (answer.args && typeof answer.args === "object") {
        // OpenCode runs the very object that it showed us.
        for (const name of Object.keys(output.args)) delete output.args[name]
        Object.assign(output.args, answer.args)
      }
    },
    "tool.execute.after": async (input, output) => {
      if (output && typeof output.output === "string") output.output += notesOf(input.sessionID, true)
    },
    dispose: async () => {
      if (!server) return
      for (const session of sessions) server.tell(hook("dispose", session, {}))
      await server.lastWords()
    },
  }
}
