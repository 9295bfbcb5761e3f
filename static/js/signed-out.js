// On the sign-in page nobody is signed in: nothing of what requests said stays in this browser.
import { forget } from "./device.js";

forget().catch(() => {});
