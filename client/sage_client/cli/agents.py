"""`sage agents`: the main agent and subagents."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sage_client.cli.output import ACCENT, FAINT, LABEL, Column, Output
from sage_client.cli.session import UsageProblemError, confirm, session_of
from sage_client.cli.texts import counted, exactly, seconds, when
from sage_client.models.agents import Agent, AgentSettings, MemoryMode

app = typer.Typer(
    help="The main agent and subagents: their settings and tools.\n\nExample: sage agents list",
    no_args_is_help=True,
)

Mode = Literal["shared", "isolated", "overlay"]
Name = Annotated[str, typer.Argument(help="An agent's name.")]
Description = Annotated[str | None, typer.Option(help="What it is good at.")]
Model = Annotated[str | None, typer.Option(help="As `provider/model`; empty for the server's default.")]
Prompt = Annotated[str | None, typer.Option(help="The instruction at the top of its context.")]
Zone = Annotated[str | None, typer.Option(help="The zone in which it is told the time: Europe/Lisbon.")]
MaxSteps = Annotated[int | None, typer.Option(min=0, help="Steps of a turn; 0 for the server's default.")]
Tools = Annotated[list[str] | None, typer.Option("--tool", help="A tool that it may call; repeat for more.")]


@app.command("list")
def list_command(ctx: typer.Context) -> None:
    """All agents by name.

    Example: sage agents list
    """
    session = session_of(ctx)
    agents = list(session.client.agents.list())
    if session.output.document(agents):
        return
    columns = [
        Column("name", LABEL),
        Column("state"),
        Column("memory"),
        Column("last turn"),
        Column("model", ACCENT, wide_only=True),
        Column("description"),
    ]
    rows = [
        (
            one.name,
            "enabled" if one.enabled else "disabled",
            one.memory_mode,
            when(one.last_turn_time),
            one.model,
            one.description,
        )
        for one in agents
    ]
    session.output.table(columns, rows, "There are no agents yet: `sage chat` enables main.")


@app.command("create")
def create(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(help="Its name, which never changes.")],
    description: Description = None,
    memory: Annotated[Mode, typer.Option(help="What it sees of the user's memory.")] = "shared",
    model: Model = None,
    prompt: Prompt = None,
    time_zone: Zone = None,
    max_steps: MaxSteps = None,
    tool: Tools = None,
) -> None:
    """Make a subagent.

    Example: sage agents create researcher --description "Finds things on the web"
    """
    session = session_of(ctx)
    settings = _settings(
        description=description,
        model=model,
        prompt=prompt,
        time_zone=time_zone,
        max_steps=max_steps,
        tools=tool,
    )
    settings["memory_mode"] = MemoryMode(memory)
    made = session.client.agents.create(name, **settings)
    if not session.output.document(made):
        session.output.done(f"Made the agent {made.name}. Talk to it: sage chat --agent {made.name}")


@app.command("show")
def show(ctx: typer.Context, name: Name = "main") -> None:
    """An agent's settings.

    Example: sage agents show main
    """
    session = session_of(ctx)
    agent = session.client.agents.get(name)
    if not session.output.document(agent):
        _show(session.output, agent)


@app.command("update")
def update(
    ctx: typer.Context,
    *,
    name: Name,
    enable: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether it may run turns.")
    ] = None,
    description: Description = None,
    model: Model = None,
    prompt: Prompt = None,
    time_zone: Zone = None,
    max_steps: MaxSteps = None,
    tool: Tools = None,
) -> None:
    """Change what is given of an agent's settings, and nothing else.

    Example: sage agents update main --time-zone Europe/Lisbon --max-steps 20
    """
    session = session_of(ctx)
    settings = _settings(
        description=description,
        model=model,
        prompt=prompt,
        time_zone=time_zone,
        max_steps=max_steps,
        tools=tool,
    )
    if enable is not None:
        settings["enabled"] = enable
    if not settings:
        raise UsageProblemError("give at least one setting to change")
    changed = session.client.agents.update(name, **settings)
    if not session.output.document(changed):
        _show(session.output, changed)


@app.command("delete")
def delete(
    ctx: typer.Context,
    *,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a subagent with its thread and its own memory, for good.

    Example: sage agents delete researcher --yes
    """
    session = session_of(ctx)
    confirm(f"Delete the agent {name}, its thread and its own memory for good?", yes=yes)
    gone = session.client.agents.delete(name)
    if not session.output.document(gone):
        session.output.done(
            f"Deleted {name} with {counted(gone.deleted_item_count, 'item')}, "
            f"{counted(gone.deleted_memory_count, 'memory', 'memories')} and "
            f"{counted(gone.deleted_block_count, 'block')}."
        )


@app.command("find")
def find(
    ctx: typer.Context,
    *,
    task: Annotated[str, typer.Argument(help="What there is to do.")],
    limit: Annotated[int, typer.Option(min=1, max=50, help="The most agents.")] = 5,
) -> None:
    """The agents whose descriptions fit a task best.

    Example: sage agents find "look up the price of seeds"
    """
    session = session_of(ctx)
    matches = session.client.agents.find(task, top_k=limit)
    if session.output.document(matches):
        return
    columns = [Column("score", ACCENT), Column("name", LABEL), Column("description")]
    rows = [(f"{match.score:.2f}", match.agent.name, match.agent.description) for match in matches]
    session.output.table(columns, rows, "No enabled agent has a description.")


@app.command("tools")
def tools(ctx: typer.Context, name: Name = "main") -> None:
    """The tools of an agent, and those that are switched off.

    Example: sage agents tools main
    """
    session = session_of(ctx)
    found = list(session.client.agents.tools(name))
    if session.output.document(found):
        return
    columns = [Column("tool", LABEL), Column("state"), Column("description")]
    rows = [(one.name, _state(one.enabled, one.disabled_by_flag), one.description) for one in found]
    session.output.table(columns, rows, "It has no tools.")


def _settings(
    *,
    description: str | None,
    model: str | None,
    prompt: str | None,
    time_zone: str | None,
    max_steps: int | None,
    tools: list[str] | None,
) -> AgentSettings:
    settings = AgentSettings()
    if description is not None:
        settings["description"] = description
    if model is not None:
        settings["model"] = model
    if prompt is not None:
        settings["system_prompt"] = prompt
    if time_zone is not None:
        settings["time_zone"] = time_zone
    if max_steps is not None:
        settings["max_steps"] = max_steps
    if tools:
        settings["allowed_tools"] = tools
    return settings


def _state(enabled: bool, flag: str) -> str:  # noqa: FBT001 -- a value to show
    return "on" if enabled else f"off by {flag}" if flag else "off"


def _show(output: Output, one: Agent) -> None:
    output.line((one.name, LABEL), ("" if one.enabled else "  disabled", FAINT))
    output.pairs(
        [
            ("id", one.id),
            ("description", one.description or "-"),
            ("model", one.model or "the server's default"),
            ("memory", one.memory_mode),
            ("time zone", one.time_zone or "the server's default"),
            ("context", f"{one.max_context_tokens:,} tokens"),
            ("turn", f"up to {counted(one.max_steps, 'step')}, {seconds(one.max_turn_duration)}"),
            ("tools", "all" if one.allowed_tools is None else ", ".join(one.allowed_tools) or "none"),
            ("thread", counted(one.message_count, "item")),
            ("last turn", exactly(one.last_turn_time) or "never"),
            *([("prompt", one.system_prompt)] if one.system_prompt else []),
        ]
    )
