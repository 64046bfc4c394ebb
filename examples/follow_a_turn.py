"""The events of a turn, each as it happens.

If the connection breaks in between, the client attaches to the turn again: no event is lost or comes twice.

With the offline model it prints:

    accepted: I live in Porto.
    step 1 asks offline/sage
      memory_append ...
      ok: Done. The block has ... of 5000 characters.
    step 2 asks offline/sage
    No language model is configured. ...
    Kept in core memory (human): “I live in Porto.”
    done: 2 steps, 1 tool call
"""

import asyncio
import sys

import sage_client
from sage_client import (
    TurnAccepted,
    TurnDone,
    TurnFailed,
    TurnMessage,
    TurnToolCall,
    TurnToolResult,
    TurnTyping,
)


async def main() -> None:
    """One message, and what comes of it."""
    async with sage_client.connect_async(*sys.argv[1:], user="follower") as client:
        agent = client.agent("main")
        await agent.enable()
        async for event in agent.chat("I live in Porto."):
            match event:
                case TurnAccepted(input=message) if message is not None:
                    print("accepted:", message.text)
                case TurnTyping(step=step, model=model):
                    print(f"step {step} asks {model}")
                case TurnToolCall(name=name, arguments_json=arguments):
                    print(" ", name, arguments)
                case TurnToolResult(outcome=outcome, output=output):
                    print(f"  {outcome.value}: {output}")
                case TurnMessage():
                    print(event.text)
                case TurnDone(step_count=steps, tool_call_count=calls):
                    print(f"done: {steps} steps, {calls} tool call")
                case TurnFailed(reason=reason, message=text):
                    print(f"failed: {text} ({reason})")


asyncio.run(main())
