// Signalbox's plugin for OpenCode and its forks: reports what happens in its sessions, and holds calls until decided.
//
// `signalbox connect` writes it into the agent's folder of plugins. It does not talk to a server itself: it calls
// `signalbox hook`, as the settings of other agents do, so that it waits as long as they do, keeps what could not be
// sent, and says the same. About a call it starts one process, which reads the hook on stdin and answers on stdout; any
// end of that process but a proper answer, or none with exit code 0, blocks the call. All other hooks go, a line each,
// to one process (`--stream`), for which nobody waits. It ends the sessions when this program ends, however that comes.
//
// It exports one function: OpenCode takes each export for a plugin.
//
// Tried with OpenCode 1.18.33. Its type for plugins has a function `permission.ask` that this version never calls, so
// a permission that OpenCode asks its own person for is answered when it reports that it asks (`permission.asked`).
// So is a question of its agent, and a plan, which it asks about as a question (`question.asked`): both also appear on
// its screen, and the first answer counts.

import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { open } from "node:fs/promises"
import { resolve as resolvePath } from "node:path"

const AGENT = "opencode" // `signalbox connect` writes the agent's name here: forks of OpenCode load this file, too
const HOOK_PROGRAM = ["signalbox"] // and how Signalbox's program starts, so that no variable chooses another server
const SERVER = "" // and the server's address, for people who wait at their screen
const WAIT_SECONDS = 590 // that a call may wait for a person
const OVERDUE_SECONDS = 15 // after that, until a process that should have answered is given up
const HOOK_FAILED =
  "The hook that asks Signalbox was killed or did not work, so this call did not run. Try again. If that does not help, run: signalbox connect --check"
const MOST_UNSENT = 1000 // hooks kept in memory until the reporting process has taken them; then the oldest go
const LARGEST_HOOK = 16 << 20 // characters; the program takes no larger ones
const RESTART_AFTER = 5000 // milliseconds until a reporting process that failed is started again
const SAY_AFTER = 1500 // milliseconds that a call waits before the screen says what for
const SAY_EVERY = 10_000 // milliseconds that it says so, and after which it says it again
const LAST_WORDS = 1500 // milliseconds for what is not sent yet, at the end
const SETTLE_WITHIN = 3000 // milliseconds for the result of an answered question to close its card, before we leave
const PLAN_TOOL = "plan_exit"
const PLAN_QUESTION = /^Plan at (.+) is complete\b/ // its path, in the question that this tool asks
const LARGEST_PLAN = 200_000 // bytes of a plan that are read
const REPORTED = new Set([
  "session.created",
  "session.deleted",
  "session.idle",
  "session.error",
  "session.compacted",
])

// Starts `signalbox hook` with these options.
function startHook(options, how) {
  const [program, ...words] = HOOK_PROGRAM
  const child = spawn(program, [...words, "hook", AGENT, ...options], how)
  child.stdin?.on("error", () => {}) // it has ended: its exit says so
  return child
}

// Returns the beginning of a plan's file, "" where it cannot be read.
async function readPlan(path) {
  let file
  try {
    file = await open(path)
    const { bytesRead, buffer } = await file.read(Buffer.alloc(LARGEST_PLAN), 0, LARGEST_PLAN, 0)
    return buffer.toString("utf8", 0, bytesRead)
  } catch {
    return ""
  } finally {
    await file?.close().catch(() => {})
  }
}

// Returns the answer that `signalbox hook` printed, null for none. Throws where it cannot be understood.
function answerIn(text) {
  if (!text.trim()) return null
  const answer = JSON.parse(text)
  const isNote = answer?.decision === undefined && typeof answer?.note === "string"
  if (!isNote && !["allow", "deny", "ask"].includes(answer?.decision)) throw new Error("an unknown answer")
  return answer
}

// Asks about a call: its answer, null where Signalbox leaves it to the agent. Throws where the call must not run.
// `waiting` holds the process as long as it runs: killing that ends the wait.
function ask(hook, waiting) {
  return new Promise((resolve, reject) => {
    const fail = (why) => reject(new Error(why ? `${HOOK_FAILED} (${why})` : HOOK_FAILED))
    let child
    try {
      child = startHook(["--timeout", String(WAIT_SECONDS)], { stdio: "pipe" })
    } catch (problem) {
      fail(problem.message)
      return
    }
    const printed = { out: "", err: "" }
    const overdue = setTimeout(() => child.kill("SIGKILL"), (WAIT_SECONDS + OVERDUE_SECONDS) * 1000)
    const end = () => {
      clearTimeout(overdue)
      waiting.delete(child)
    }
    waiting.add(child)
    child.stdout.setEncoding("utf8").on("data", (text) => (printed.out += text))
    child.stderr.setEncoding("utf8").on("data", (text) => (printed.err = (printed.err + text).slice(-500)))
    child.on("error", (problem) => {
      end()
      fail(problem.message)
    })
    child.on("close", (code) => {
      end()
      if (code !== 0) return fail(printed.err.trim())
      try {
        resolve(answerIn(printed.out))
      } catch (problem) {
        fail(problem.message)
      }
    })
    child.stdin.end(JSON.stringify(hook))
  })
}

// Sends hooks that need no answer, in order, by one process. Never waits, never throws.
class Reporter {
  constructor() {
    this.unsent = new Map() // lines that the process has not taken yet, by their id
    this.child = null
    this.restart = null
    this.isOver = false
  }

  report(hook) {
    const body = JSON.stringify(hook)
    if (body.length > LARGEST_HOOK) return
    const id = randomUUID()
    const line = `${id} ${body}\n`
    this.unsent.set(id, line)
    if (this.unsent.size > MOST_UNSENT) this.unsent.delete(this.unsent.keys().next().value)
    if (this.child) this.child.stdin.write(line)
    else if (!this.restart) this.start()
  }

  start() {
    this.restart = null
    let child
    try {
      child = startHook(["--stream"], { stdio: ["pipe", "pipe", "ignore"], detached: true })
    } catch {
      this.startLater()
      return
    }
    this.child = child
    let taken = ""
    child.stdout.setEncoding("utf8").on("data", (text) => {
      const lines = (taken + text).split("\n")
      taken = lines.pop()
      for (const id of lines) this.unsent.delete(id)
    })
    const ended = () => {
      if (this.child !== child) return
      this.child = null
      this.startLater()
    }
    child.on("error", ended).on("close", ended)
    child.unref()
    for (const line of this.unsent.values()) child.stdin.write(line)
  }

  startLater() {
    if (this.isOver || this.restart) return
    this.restart = setTimeout(() => (this.unsent.size ? this.start() : (this.restart = null)), RESTART_AFTER)
    this.restart.unref?.()
  }

  // Ends it, and with it the sessions. Waits a moment for what is not sent yet; the process goes on without us.
  async end() {
    this.isOver = true
    const child = this.child
    if (!child) return
    const ended = new Promise((resolve) => child.on("close", resolve))
    child.stdin.end()
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, LAST_WORDS))])
  }
}

const words = (parts) =>
  (Array.isArray(parts) ? parts : [])
    .filter((part) => part && part.type === "text" && !part.synthetic && typeof part.text === "string")
    .map((part) => part.text)
    .join("\n")

// Says whether an event is one that Signalbox wants to hear.
function isReported({ type, properties }) {
  if (type === "message.part.updated") {
    const part = properties?.part || {}
    if (part.type === "tool") return ["completed", "error"].includes(part.state?.status)
    return part.type === "text" && Boolean(part.time?.end)
  }
  if (type === "message.updated") return Boolean(properties?.info?.role === "assistant" && properties.info.time?.completed)
  return REPORTED.has(type)
}

const sessionOf = (properties) =>
  properties?.sessionID || properties?.part?.sessionID || properties?.info?.sessionID || properties?.info?.id

export const SignalboxPlugin = async ({ client, directory, worktree }) => {
  const reporter = new Reporter()
  const notes = new Map() // what a person wrote to a session's agent, until a result of it carries that
  const allowed = new Set() // calls that Signalbox let run: OpenCode need not ask for them again
  const waiting = new Map() // the processes that ask, by the session or the question whose end makes them needless
  const plans = new Set() // calls that ask about a plan
  const feedback = new Map() // what a person wrote when they rejected a session's question
  const speakers = new Map() // the agent and the model that a session's person speaks with

  const hookOf = (name, session, fields) => {
    const timestamp = new Date().toISOString()
    return { hook_event_name: name, session_id: session, cwd: directory, timestamp, ...fields }
  }

  const waitingFor = (key) => {
    if (!waiting.has(key)) waiting.set(key, new Set())
    return waiting.get(key)
  }

  const stopWaiting = (key) => {
    for (const child of waiting.get(key) || []) child.kill("SIGKILL")
    waiting.delete(key)
  }

  const notesOf = (session, carried = false) => {
    const text = notes.get(session) || ""
    if (carried) notes.delete(session)
    return text
  }

  // Says on the screen what a call waits for, as long as `waits` has not ended. OpenCode shows a running call only.
  const sayWhile = async (waits) => {
    const where = SERVER ? `: ${SERVER}/ui/approvals/` : ""
    const body = { message: `Waiting for approval in Signalbox${where}`, variant: "info", duration: SAY_EVERY }
    const say = () => client?.tui?.showToast({ body }).catch(() => {}) // there may be no screen
    let timer = setTimeout(() => {
      say()
      timer = setInterval(say, SAY_EVERY)
    }, SAY_AFTER)
    try {
      return await waits
    } finally {
      clearTimeout(timer)
    }
  }

  const answerPermission = async (event) => {
    const { id, sessionID, permission, metadata, patterns, tool } = event.properties || {}
    const reply = async (response) => {
      await client.postSessionIdPermissionsPermissionId({ path: { id: sessionID, permissionID: id }, body: { response } })
    }
    if (tool?.callID && allowed.has(tool.callID)) return reply("once")
    const asked = hookOf("permission.asked", sessionID, {
      event_id: event.id,
      tool_name: permission,
      tool_input: { ...metadata, patterns },
      tool_use_id: tool?.callID,
    })
    const answer = await ask(asked, waitingFor(id))
    waiting.delete(id)
    if (answer?.decision === "allow") await reply("once")
    if (answer?.decision === "deny") await reply("reject")
  }

  // Posts to OpenCode's own server: what plugins are handed has no functions for questions.
  const post = (url, path, body = {}) =>
    client._client.post({ url, path, body, headers: { "Content-Type": "application/json" }, throwOnError: true })

  // Returns a question as its tool's input: that of a plan has the plan.
  const describeQuestion = async ({ questions, tool }) => {
    if (!plans.has(tool?.callID)) return ["question", { questions }]
    const path = PLAN_QUESTION.exec(questions?.[0]?.question || "")?.[1]
    if (!path) return ["question", { questions }]
    return [PLAN_TOOL, { plan: await readPlan(resolvePath(worktree || directory, path)), plan_path: path }]
  }

  const answerQuestion = async (event) => {
    const { id, sessionID, tool } = event.properties || {}
    const reply = (answers) => post("/question/{requestID}/reply", { requestID: id }, { answers })
    const [toolName, toolInput] = await describeQuestion(event.properties || {})
    if (toolName === PLAN_TOOL && allowed.has(tool.callID)) return reply([["Yes"]])
    const asked = hookOf("question.asked", sessionID, {
      event_id: event.id,
      tool_name: toolName,
      tool_input: toolInput,
      tool_use_id: tool?.callID,
    })
    const answer = await ask(asked, waitingFor(id))
    waiting.delete(id)
    if (answer?.decision === "allow") {
      const answers = toolName === PLAN_TOOL ? [["Yes"]] : answer.answers
      if (Array.isArray(answers)) await reply(answers)
    } else if (answer?.decision === "deny") {
      // A rejected question ends the turn, so that what the person wrote begins another, once that has ended.
      if (typeof answer.feedback === "string") feedback.set(sessionID, answer.feedback)
      await post("/question/{requestID}/reject", { requestID: id })
    }
  }

  const sendFeedback = async (session) => {
    const text = feedback.get(session)
    if (!feedback.delete(session)) return
    const body = { ...speakers.get(session), parts: [{ type: "text", text }] }
    await post("/session/{id}/prompt_async", { id: session }, body)
  }

  return {
    event: async ({ event }) => {
      if (!event) return
      const session = sessionOf(event.properties)
      if (event.type === "permission.asked") {
        answerPermission(event).catch(() => {}) // OpenCode's own prompt stands
      } else if (event.type === "permission.replied") {
        stopWaiting(event.properties?.requestID || event.properties?.permissionID)
      } else if (event.type === "question.asked") {
        answerQuestion(event).catch(() => {}) // OpenCode's own prompt stands
      } else if (["question.replied", "question.rejected"].includes(event.type)) {
        // The call's result, which follows, says that it was answered there.
        setTimeout(() => stopWaiting(event.properties?.requestID), SETTLE_WITHIN).unref?.()
      } else if (session && isReported(event)) {
        if (["session.idle", "session.deleted"].includes(event.type)) stopWaiting(session) // its turn was stopped
        if (event.type === "session.idle") sendFeedback(session).catch(() => {})
        reporter.report(hookOf(event.type, session, { event_id: event.id, properties: event.properties }))
      }
    },
    "chat.message": async (input, output) => {
      if (input?.agent) speakers.set(input.sessionID, { agent: input.agent, model: input.model })
      const fields = { message_id: output?.message?.id, prompt: words(output?.parts) }
      reporter.report(hookOf("chat.message", input?.sessionID, fields))
    },
    "tool.execute.before": async (input, output) => {
      if (input.tool === PLAN_TOOL) plans.add(input.callID)
      const asked = hookOf("tool.execute.before", input.sessionID, {
        tool_name: input.tool,
        tool_input: output.args,
        tool_use_id: input.callID,
        takes_notes: true,
      })
      const answer = await sayWhile(ask(asked, waitingFor(input.sessionID)))
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
      for (const key of [...waiting.keys()]) stopWaiting(key)
      await reporter.end()
    },
  }
}
