"""Templates as those who keep them meet them: versions, locales, what is refused, and what it comes to."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from notifyqueue.v1 import notification_pb2, templates_pb2, templates_pb2_grpc
from services.scheduler import templates
from tests.integration.conftest import StartScheduler
from tests.notifications import Notifications
from tests.templates import GREETING, NAME, put
from tests.waiting import eventually

Stub = templates_pb2_grpc.TemplatesStub
get, render = templates_pb2.GetTemplateRequest, templates_pb2.RenderTemplateRequest
listing, delete = templates_pb2.ListTemplatesRequest, templates_pb2.DeleteTemplateRequest

GERMAN = {"email": {**GREETING, "text": "Hallo {{ name }}"}}
AUSTRIAN = {"email": {**GREETING, "text": "Servus {{ name }}"}}
ENGLISH = {"email": GREETING}


@pytest.fixture
async def stub(start_scheduler: StartScheduler, database_url: str) -> Stub:
    return Stub(await start_scheduler(database_url))


async def refusal(call: Any) -> tuple[str, str]:
    """Its reason, and what it says."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    trailers: dict[str, Any] = dict(refused.value.trailing_metadata() or ())
    return trailers["error-reason"], refused.value.details() or ""


async def test_each_other_content_is_another_version_and_the_same_is_none(stub: Stub) -> None:
    first = await stub.PutTemplate(put())
    same = await stub.PutTemplate(put())
    other = await stub.PutTemplate(put(en={"email": {"subject": "s", "text": "t"}}))
    back = await stub.PutTemplate(put())
    assert [answer.template.version for answer in (first, same, other, back)] == [1, 1, 2, 3]
    assert [answer.unchanged for answer in (first, same, other, back)] == [False, True, False, False]
    assert (first.template.name, first.template.channel) == (NAME, notification_pb2.CHANNEL_EMAIL)
    assert same.template == first.template
    assert (await stub.GetTemplate(get(name=NAME))).template == back.template
    old = await stub.GetTemplate(get(name=NAME, version=2))
    assert (old.template, old.variants[0].email.text) == (other.template, "t")


async def test_a_template_is_given_back_as_it_was_put(stub: Stub) -> None:
    said = put(de=GERMAN, de_AT=AUSTRIAN, en={"email": {**GREETING, "headers": {"X-A": "{{ a }}"}}})
    await stub.PutTemplate(said)
    found = await stub.GetTemplate(get(name=NAME))
    assert sorted(said.variants, key=lambda each: each.locale) == list(found.variants)
    assert list(found.template.locales) == ["de", "de-AT", "en"]
    assert found.template.actor == "anonymous"


async def test_fifty_who_put_at_once_get_fifty_consecutive_versions(
    start_scheduler: StartScheduler, database_url: str
) -> None:
    stubs = [Stub(await start_scheduler(database_url)) for _ in range(2)]
    answers = await asyncio.gather(
        *(stubs[n % 2].PutTemplate(put(en={"email": {"subject": "s", "text": str(n)}})) for n in range(50))
    )
    assert sorted(answer.template.version for answer in answers) == list(range(1, 51))


async def test_the_same_put_by_many_at_once_is_one_version(stub: Stub) -> None:
    answers = await asyncio.gather(*(stub.PutTemplate(put()) for _ in range(20)))
    assert {answer.template.version for answer in answers} == {1}
    assert [answer.unchanged for answer in answers].count(False) == 1


async def test_a_list_has_each_once_in_its_newest_version_the_last_first(stub: Stub) -> None:
    for number in range(5):
        await stub.PutTemplate(put(name=f"t{number}"))
    await stub.PutTemplate(put(name="t1", en={"email": {"subject": "s", "text": "t"}}))
    await stub.DeleteTemplate(delete(name="t3"))
    pages, token = [], ""
    while True:
        page = await stub.ListTemplates(listing(page_size=2, page_token=token))
        pages.append([(template.name, template.version) for template in page.templates])
        if not (token := page.next_page_token):
            break
    assert [each for page in pages for each in page] == [("t4", 1), ("t2", 1), ("t1", 2), ("t0", 1)]
    assert max(map(len, pages)) == 2
    assert (await refusal(stub.ListTemplates(listing(page_token="x"))))[0] == "PAGE_TOKEN_INVALID"


async def test_what_is_erased_is_gone_and_its_versions_go_on_counting(stub: Stub, notifications: Notifications) -> None:
    for text in ("a", "b"):
        await stub.PutTemplate(put(en={"email": {"subject": "s", "text": text}}))
    await stub.DeleteTemplate(delete(name=NAME))
    assert await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.template_versions") == 0
    for call in (
        stub.GetTemplate(get(name=NAME)),
        stub.GetTemplate(get(name=NAME, version=1)),
        stub.RenderTemplate(render(name=NAME)),
        stub.DeleteTemplate(delete(name=NAME)),
    ):
        assert (await refusal(call))[0] == "RESOURCE_NOT_FOUND"
    again = await stub.PutTemplate(put(en={"sms": {"text": "b"}}))  # another channel, too
    assert (again.template.version, again.unchanged) == (3, False)
    assert (await refusal(stub.GetTemplate(get(name=NAME, version=1))))[0] == "RESOURCE_NOT_FOUND"


async def test_a_name_keeps_its_channel(stub: Stub) -> None:
    await stub.PutTemplate(put())
    assert await refusal(stub.PutTemplate(put(en={"sms": {"text": "b"}}))) == (
        "REQUEST_INVALID",
        "variants: must be for EMAIL, as the template is",
    )


async def test_whoever_writes_a_tenants_templates_waits_for_whoever_does(
    stub: Stub, notifications: Notifications
) -> None:
    connection = notifications.connection
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock_shared(hashtextextended('templates of default', 0))")
        writing = asyncio.ensure_future(stub.PutTemplate(put()))

        async def waits_or_goes_in() -> bool:
            waiting = await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return bool(waiting) or writing.done()

        await eventually(waits_or_goes_in)
        assert not writing.done()
    await writing


@pytest.mark.parametrize("quota", ["MAX_TEMPLATES", "MAX_VERSIONS"])
async def test_quotas_are_exact_for_many_at_once(
    stub: Stub, notifications: Notifications, monkeypatch: pytest.MonkeyPatch, quota: str
) -> None:
    monkeypatch.setattr(templates, quota, 3)
    many = quota == "MAX_TEMPLATES"
    answers = await asyncio.gather(
        *(
            stub.PutTemplate(put(name=f"t{n}" if many else "t", en={"email": {"subject": "s", "text": str(n)}}))
            for n in range(8)
        ),
        return_exceptions=True,
    )
    refused = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert len(refused) == 5
    assert {dict(each.trailing_metadata() or ())["error-reason"] for each in refused} == {"QUOTA_EXCEEDED"}
    if many:  # what is erased makes room
        (kept, *_) = (await stub.ListTemplates(listing())).templates
        await stub.DeleteTemplate(delete(name=kept.name))
        await stub.PutTemplate(put(name="new"))
        await notifications.connection.execute("UPDATE notifyqueue.tenants SET template_quota = 4")  # its own number
        await stub.PutTemplate(put(name="newer"))
        assert (await refusal(stub.PutTemplate(put(name="newest"))))[0] == "QUOTA_EXCEEDED"


@pytest.mark.parametrize(
    ("asked", "locale", "text"),
    [
        ("", "en", "Hello Ann"),
        ("fr", "en", "Hello Ann"),
        ("de", "de", "Hallo Ann"),
        ("de-CH", "de", "Hallo Ann"),
        ("DE-at", "de-AT", "Servus Ann"),
        ("de-AT-1996", "de-AT", "Servus Ann"),
    ],
)
async def test_a_locale_falls_back_to_what_there_is(stub: Stub, asked: str, locale: str, text: str) -> None:
    await stub.PutTemplate(put(en=ENGLISH, de=GERMAN, de_AT=AUSTRIAN))
    variables = '{"name": "Ann", "order": 17}'
    answer = await stub.RenderTemplate(render(name=NAME, locale=asked, variables_json=variables))
    assert (answer.locale, answer.email.text, answer.version) == (locale, text, 1)


async def test_a_mail_says_its_size_and_escapes_in_html_only(stub: Stub) -> None:
    await stub.PutTemplate(put())
    variables = '{"name": "<b>Ann & \\"Bob\\"", "order": "<1>"}'
    answer = await stub.RenderTemplate(render(name=NAME, variables_json=variables))
    assert answer.email.subject == "Order <1>"
    assert answer.email.text == 'Hello <b>Ann & "Bob"'
    assert answer.email.html == "<p>Hello &lt;b&gt;Ann &amp; &quot;Bob&quot;</p>"
    parts = (answer.email.subject, answer.email.text, answer.email.html)
    assert answer.size == sum(len(part.encode()) for part in parts)
    assert not answer.HasField("sms_size")


async def test_a_text_message_says_how_it_travels(stub: Stub) -> None:
    await stub.PutTemplate(put(en={"sms": {"text": "{{ text }}"}}))

    async def size(text: str) -> tuple[str, int, int]:
        answer = await stub.RenderTemplate(render(name=NAME, variables_json=f'{{"text": "{text}"}}'))
        found = answer.sms_size
        return templates_pb2.SmsSize.Encoding.Name(found.encoding), found.segments, found.units

    assert await size("a" * 160) == ("ENCODING_GSM_7", 1, 160)
    assert await size("€" * 81) == ("ENCODING_GSM_7", 2, 162)
    assert await size("ł" + "a" * 70) == ("ENCODING_UCS_2", 2, 71)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        (put(name=""), "name"),
        (put(name="-a"), "name"),
        (put(name="a" * 129), "name"),
        (put(default_locale=""), "default_locale"),
        (put(default_locale="de"), "default_locale"),
        (put(default_locale="e"), "default_locale"),
        (templates_pb2.PutTemplateRequest(name="a", default_locale="en"), "variants"),
        (put(en={}), "variants[0].content"),
        (put(en=ENGLISH, de={"sms": {"text": "a"}}), "variants"),
        (put(en=ENGLISH, EN=ENGLISH), "variants[1].locale"),
        (put(en={"email": {"subject": "{{ a", "text": "b"}}), "variants[0].email.subject"),
        (put(en={"email": {"subject": "", "text": "b"}}), "variants[0].email.subject"),
        (put(en={"email": {"subject": "{{ a }}\n", "text": "b"}}), "variants[0].email.subject"),
        (put(en={"email": {"subject": "a", "text": "b", "sender": "nobody"}}), "variants[0].email.sender"),
        (put(en={"email": {"subject": "a", "text": "b", "headers": {"To": "{{ a }}"}}}), "variants[0].email.headers"),
        (put(en={"email": {"subject": "a", "text": "b" * 65_536}}), "variants[0].email"),
        (put(en={"sms": {"text": " "}}), "variants[0].sms.text"),
        (put(en={"push": {"body": "{{ a }}"}}), "variants[0].push.title"),
    ],
)
async def test_what_is_no_template_is_refused_by_its_field(
    stub: Stub, notifications: Notifications, said: templates_pb2.PutTemplateRequest, field: str
) -> None:
    reason, told = await refusal(stub.PutTemplate(said))
    assert (reason, told.partition(":")[0]) == ("REQUEST_INVALID", field)
    assert await notifications.connection.fetchval("SELECT count(*) FROM notifyqueue.templates") == 0


async def test_a_syntax_error_names_its_line_and_repeats_nothing(stub: Stub) -> None:
    said = put(en={"email": {"subject": "a", "text": "one\ntwo {{ geheim 'verraten' oops }}"}})
    reason, told = await refusal(stub.PutTemplate(said))
    assert reason == "REQUEST_INVALID"
    assert told.startswith("variants[0].email.text: line 2: ")
    assert not any(word in told for word in ("geheim", "verraten", "oops"))


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (render(), "name"),
        (render(name=NAME, version=-1), "version"),
        (render(name=NAME, locale="x y"), "locale"),
        (render(name=NAME, variables_json="[]"), "variables_json"),
    ],
)
async def test_what_cannot_be_rendered_is_refused_by_its_field(
    stub: Stub, asked: templates_pb2.RenderTemplateRequest, field: str
) -> None:
    assert (await refusal(stub.RenderTemplate(asked)))[1].partition(":")[0] == field


async def test_all_that_is_missing_is_named(stub: Stub) -> None:
    await stub.PutTemplate(put())
    reason, told = await refusal(stub.RenderTemplate(render(name=NAME)))
    assert (reason, told) == (
        "TEMPLATE_RENDER_FAILED",
        "the template cannot be rendered: missing variables: order, name",
    )


async def test_tenants_do_not_see_each_others_templates(stub: Stub, notifications: Notifications) -> None:
    await stub.PutTemplate(put())
    await notifications.connection.execute("INSERT INTO notifyqueue.tenants (id) VALUES ('other')")
    await notifications.connection.execute("UPDATE notifyqueue.templates SET tenant_id = 'other'")
    assert (await refusal(stub.GetTemplate(get(name=NAME))))[0] == "RESOURCE_NOT_FOUND"
    assert not (await stub.ListTemplates(listing())).templates
    assert (await stub.PutTemplate(put())).template.version == 1
