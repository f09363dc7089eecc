// The one tool that the agent has in the live tests: it needs nothing but what it is told.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { Type } from "typebox";

export default function (pi: ExtensionAPI) {
  pi.registerTool({
    name: "get_weather",
    label: "Weather",
    description: "weather of a city",
    parameters: Type.Object({ city: Type.String() }),
    execute: async (_id, { city }) => ({
      content: [{ type: "text", text: `Sunny in ${city}, 21 degrees` }],
      details: {},
    }),
  });
  // The tiny model spells a tool's name for sure at temperature 0 only, and the agent's own setting for it knows
  // nothing of the Messages API.
  pi.on("before_provider_request", ({ payload }) => ({ ...(payload as object), temperature: 0 }));
}
