"""What each command does, for people and with --json."""

from __future__ import annotations

import json
from pathlib import Path

from sage_client import AsyncSageClient, NewItem
from support.agents import answer
from support.cli import Cli
from support.memory import indexed
from support.provider import FakeProvider, chat_reply
from support.server import RunningServer


async def test_memory_is_added_listed_shown_edited_and_deleted(sage: Cli) -> None:
    said = await sage.ok("memory", "add", "Beans are sown in May", "--tag", "garden")
    (memory,) = (await sage.parsed("memory", "list"))["memories"]
    assert memory["id"] in said
    assert (memory["text"], memory["tags"], memory["source"]) == (
        "Beans are sown in May",
        ["garden"],
        "archival",
    )
    table = await sage.ok("memory", "list")
    assert memory["id"] in table
    assert "Beans are sown in May" in table
    assert (await sage.parsed("memory", "list", "--tag", "sea"))["memories"] == []

    assert "Changed" in await sage.ok("memory", "edit", memory["id"], "Beans are sown in June")
    shown = await sage.parsed("memory", "show", memory["id"])
    assert shown["text"] == "Beans are sown in June"
    assert "Beans are sown in June" in await sage.ok("memory", "show", memory["id"])
    changed = await sage.parsed("memory", "edit", memory["id"], "-", typed="Beans, from standard input")
    assert changed["memory"]["text"] == "Beans, from standard input"

    assert (await sage.parsed("memory", "delete", memory["id"], "--yes"))["deleted_count"] == 1
    again = (await sage.parsed("memory", "add", "Peas"))["memory"]
    assert await sage.ok("memory", "delete", again["id"], "-y") == "Deleted.\n"
    empty = await sage("memory", "list")
    assert "no archival memories" in empty.err


async def test_blocks_go_by_label_and_have_a_history_that_can_be_restored(sage: Cli) -> None:
    assert await sage.ok("memory", "add", "Maria", "--block", "goals") == "Added the block goals.\n"
    assert (await sage.parsed("memory", "edit", "goals", "Maria Berg"))["revision"] == 2
    assert "revision 3" in await sage.ok("memory", "edit", "goals", "nothing")
    assert [one["revision"] for one in await sage.parsed("memory", "history", "goals")] == [3, 2, 1]
    history = await sage.ok("memory", "history", "goals")
    assert "Maria Berg" in history
    assert "user" in history
    assert "revision 2" in await sage.ok("memory", "restore", "goals", "2")
    restored = await sage.parsed("memory", "show", "goals")
    assert (restored["value"], restored["revision"]) == ("Maria Berg", 4)
    assert "Maria Berg" in await sage.ok("memory", "show", "goals")
    assert [one["label"] for one in (await sage.parsed("memory", "list"))["blocks"]] == ["goals"]
    assert (await sage.parsed("memory", "restore", "goals", "1"))["value"] == "Maria"
    assert "Deleted the block" in await sage.ok("memory", "delete", "goals", "--yes")
    assert (await sage.parsed("memory", "list"))["blocks"] == []
    assert (await sage.parsed("memory", "add", "x", "--block", "goals"))["label"] == "goals"
    assert (await sage.parsed("memory", "delete", "goals", "-y")) == {"deleted_revision_count": 1}


async def test_search_finds_what_was_just_added(sage: Cli) -> None:
    await sage.ok("memory", "add", "Beans are sown in May " + "and watered daily " * 40)
    found = await sage.parsed("memory", "search", "beans")
    assert found["results"][0]["memory"]["text"].startswith("Beans are sown")
    shown = await sage("memory", "search", "beans", "--source", "archival", "--limit", "3")
    assert "Beans are sown in May" in shown.out
    assert "…" in shown.out
    assert "1 found among 1 memory" in shown.err


async def test_documents_are_added_listed_and_removed(sage: Cli, tmp_path: Path) -> None:
    file = tmp_path / "garden.md"
    file.write_text("# Garden\n\nBeans are sown in May.\n")
    assert "garden.md: 1 chunk" in await sage.ok("docs", "add", str(file), "--tag", "garden")
    (again,) = await sage.parsed("docs", "add", str(file), "--tag", "garden")
    assert again["skipped"] is True
    (document,) = await sage.parsed("docs", "list")
    assert (document["title"], document["status"]) == ("garden.md", "ready")
    assert document["id"] in await sage.ok("docs", "list")
    assert "document garden.md" in await sage.ok("memory", "search", "beans")
    file.write_text("# Garden\n\nBeans are sown in June.\n")
    await sage.ok("docs", "add", str(file))
    (replaced,) = await sage.parsed("docs", "list")
    assert replaced["id"] == document["id"]
    assert "1 document with 1 chunk" in await sage.ok("docs", "rm", document["id"], "--yes")
    (other,) = await sage.parsed("docs", "add", str(file), "--title", "The garden")
    (gone,) = await sage.parsed("docs", "rm", other["document"]["id"], "-y")
    assert gone["deleted_count"] == 1
    assert "no documents" in (await sage("docs", "list")).err


async def test_a_document_comes_from_standard_input_with_a_title(sage: Cli) -> None:
    assert (await sage("docs", "add", "-", typed="Beans")).code == 2
    await sage.ok("docs", "add", "-", "--title", "Garden", typed="Beans are sown in May.")
    assert [one["title"] for one in await sage.parsed("docs", "list")] == ["Garden"]


async def test_conversations_are_made_shown_renamed_deleted_and_brought_back(
    sage: Cli, client: AsyncSageClient, tmp_path: Path
) -> None:
    made = await sage.parsed("conversations", "new", "Plans", "--private")
    assert (made["title"], made["private"]) == ("Plans", True)
    other = await sage("conversations", "new")
    assert "sage chat --conversation" in other.err
    await client.conversations.append(
        made["id"], [NewItem.user("Beans?"), NewItem.tool_call("1", "look", '{"a":1}')]
    )
    shown = await sage.ok("conversations", "show", made["id"])
    assert "Beans?" in shown
    assert "tool_call look" in shown
    parsed = await sage.parsed("conversations", "show", made["id"], "--limit", "1")
    assert [item["kind"] for item in parsed["items"]] == ["tool_call"]
    assert "Garden" in await sage.ok("conversations", "rename", made["id"], "Garden")
    assert (await sage.parsed("conversations", "rename", made["id"], "Beans"))["title"] == "Beans"
    listed = await sage.parsed("conversations", "list")
    assert [one["title"] for one in listed] == ["Beans", ""]
    assert made["id"] in await sage.ok("conversations", "list")
    assert "Deleted." in await sage.ok("conversations", "delete", made["id"])
    assert [one["id"] for one in await sage.parsed("conversations", "list", "--deleted")] == [made["id"]]
    assert made["id"] in await sage.ok("conversations", "undelete", made["id"])
    assert (await sage.parsed("conversations", "delete", made["id"]))["delete_time"] is not None
    assert (await sage.parsed("conversations", "undelete", made["id"]))["delete_time"] is None
    file = tmp_path / "one.jsonl"
    assert "1 conversation with 2 items" in await sage.ok("conversations", "export", made["id"], str(file))
    assert (await sage("conversations", "export", made["id"], str(file))).code == 2
    assert await sage.parsed("conversations", "export", made["id"], str(file), "--yes") == {
        "conversations": 1,
        "items": 2,
    }


async def test_what_is_exported_is_imported_again(sage: Cli, server: RunningServer, tmp_path: Path) -> None:
    made = await sage.parsed("conversations", "new", "Plans")
    await sage.ok("memory", "add", "Beans in May.")
    file = tmp_path / "all.jsonl"
    assert "Wrote 1 conversation and 1 memory to" in await sage.ok("export", str(file))
    assert (await sage.ok("export", "-")).encode() == file.read_bytes()
    counts = {"agents": 0, "blocks": 0, "memories": 1, "conversations": 1, "items": 0}
    refused = await sage("export", str(file))
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert await sage.parsed("export", str(file), "--yes") == counts
    other = Cli(server.address, f"other-{made['id']}")
    assert "Imported 1 conversation and 1 memory." in await other.ok("import", str(file))
    again = await other("import", "-", typed=file.read_text())
    assert "Imported nothing." in again.out
    assert "There already: 1 conversation and 1 memory." in again.err
    assert (await other.parsed("import", str(file)))["skipped"] == counts
    assert [one["title"] for one in await other.parsed("conversations", "list")] == ["Plans"]


async def test_a_file_that_is_no_export_is_refused_and_its_line_named(sage: Cli, tmp_path: Path) -> None:
    file = tmp_path / "no.jsonl"
    file.write_text('\n{"type": "memory"}\n')
    refused = await sage("import", str(file))
    assert refused.code == 2
    assert "line 2 is not a line of an export" in " ".join(refused.err.split())


async def test_agents_are_made_shown_changed_found_and_deleted(sage: Cli) -> None:
    assert "no agents yet" in (await sage("agents", "list")).err
    made = await sage.parsed(
        "agents", "create", "scout", "--description", "Finds seeds", "--memory", "overlay"
    )
    assert (made["name"], made["memory_mode"], made["enabled"]) == ("scout", "overlay", True)
    assert "sage chat --agent guide" in await sage.ok("agents", "create", "guide", "--tool", "done")
    assert (await sage.parsed("agents", "show", "guide"))["allowed_tools"] == ["done"]
    assert "Finds seeds" in await sage.ok("agents", "list")
    assert [one["name"] for one in await sage.parsed("agents", "list")] == ["guide", "scout"]
    changed = await sage.parsed("agents", "update", "scout", "--disable", "--max-steps", "3")
    assert (changed["enabled"], changed["max_steps"], changed["description"]) == (False, 3, "Finds seeds")
    assert "Europe/Lisbon" in await sage.ok(
        "agents", "update", "scout", "--enable", "--time-zone", "Europe/Lisbon"
    )
    assert "Finds seeds" in await sage.ok("agents", "show", "scout")
    (match,) = await sage.parsed("agents", "find", "find seeds", "--limit", "1")
    assert match["agent"]["name"] == "scout"
    assert "scout" in await sage.ok("agents", "find", "find seeds")
    assert "memory_append" in await sage.ok("agents", "tools", "scout")
    assert "done" in [one["name"] for one in await sage.parsed("agents", "tools", "scout")]
    assert "Deleted scout" in await sage.ok("agents", "delete", "scout", "--yes")
    assert (await sage.parsed("agents", "delete", "guide", "-y"))["deleted_item_count"] == 0


async def test_the_context_has_a_bar_for_each_part(sage: Cli, client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    shown = await sage.ok("context", "What do I sow?")
    for part in ("instruction", "blocks", "tools", "input"):
        (line,) = [line for line in shown.splitlines() if line.startswith(part)]
        assert "█" in line or "▏" in line or "▎" in line
    assert "openai/test-model" in shown
    assert "What do I sow?" in await sage.ok("context", "What do I sow?", "--full")
    preview = await sage.parsed("context", "What do I sow?")
    assert preview["token_count"] >= sum(one["token_count"] for one in preview["sections"]) > 0


async def test_usage_tells_what_was_embedded(sage: Cli, client: AsyncSageClient) -> None:
    assert "No model was used" in (await sage("usage")).err
    await client.memory.embed(["a b c"])
    await indexed(client)
    (record,) = await sage.parsed("usage", "--days", "3650")
    assert (record["purpose"], record["calls"]) == ("embedding", 1)
    assert record["model"] in await sage.ok("usage", "--days", "3650")


async def test_a_user_is_erased(sage: Cli) -> None:
    await sage.ok("memory", "add", "Beans")
    assert f"Erased {sage.user}" in (await sage.ok("erase", sage.user, "--yes")).replace("\n", " ")
    refused = await sage("erase", sage.user, "--yes", "--json")
    assert refused.code == 1
    assert json.loads(refused.err)["error"]["reason"] in {"NOT_FOUND", "USER_ERASED"}


async def test_events_are_followed_from_where_one_says(sage: Cli, provider: FakeProvider) -> None:
    provider.script_chat(chat_reply(answer("Good morning.")))
    await sage.ok("chat", "Hello")
    seen = (await sage("events", "--after", "0", "--limit", "2", "--json")).lines
    assert (seen[0]["event"], seen[0]["input"]["text"]) == ("accepted", "Hello")
    rest = (await sage("events", "--after", str(seen[0]["event_id"]), "--limit", "1", "--json")).lines
    assert rest == seen[1:]
    shown = await sage.ok("events", "--after", "0", "--limit", "1", "--agent", "main")
    assert "main ← Hello" in shown
