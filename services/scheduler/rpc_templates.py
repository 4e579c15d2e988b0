"""The Templates service: a message in, one call, a message out."""

from notifyqueue.v1 import templates_pb2, templates_pb2_grpc
from services.scheduler import messages_templates as messages
from services.scheduler.renderer import Renderer
from services.scheduler.templates import Catalogue, named
from shared.layers import Context, current_call
from shared.paging import Pages
from shared.server import Service

NAME = templates_pb2.DESCRIPTOR.services_by_name["Templates"].full_name

# What a page token is bound to: there is no filter.
BINDING = b""


class Templates(templates_pb2_grpc.TemplatesServicer):
    def __init__(self, catalogue: Catalogue, renderer: Renderer, pages: Pages) -> None:
        self._catalogue = catalogue
        self._renderer = renderer
        self._pages = pages

    async def PutTemplate(
        self, request: templates_pb2.PutTemplateRequest, context: Context
    ) -> templates_pb2.PutTemplateResponse:
        draft = messages.draft(request)
        stored, unchanged = await self._catalogue.put(_tenant(), draft, current_call.get().actor)
        return templates_pb2.PutTemplateResponse(template=messages.template(stored), unchanged=unchanged)

    async def GetTemplate(
        self, request: templates_pb2.GetTemplateRequest, context: Context
    ) -> templates_pb2.GetTemplateResponse:
        name = named(request.name, request.version)
        found = await self._catalogue.get(_tenant(), name, request.version or None)
        return templates_pb2.GetTemplateResponse(template=messages.template(found), variants=messages.variants(found))

    async def ListTemplates(
        self, request: templates_pb2.ListTemplatesRequest, context: Context
    ) -> templates_pb2.ListTemplatesResponse:
        page = self._pages.read(_tenant(), BINDING, request.page_size, request.page_token)
        found = await self._catalogue.list(_tenant(), page)
        more = len(found) == page.size
        return templates_pb2.ListTemplatesResponse(
            templates=map(messages.template, found),
            next_page_token=self._pages.token(_tenant(), BINDING, found[-1].id) if more else "",
        )

    async def DeleteTemplate(
        self, request: templates_pb2.DeleteTemplateRequest, context: Context
    ) -> templates_pb2.DeleteTemplateResponse:
        await self._catalogue.erase(_tenant(), named(request.name))
        return templates_pb2.DeleteTemplateResponse()

    async def RenderTemplate(
        self, request: templates_pb2.RenderTemplateRequest, context: Context
    ) -> templates_pb2.RenderTemplateResponse:
        use = messages.use(request)
        template = await self._catalogue.get(_tenant(), use.name, use.version)
        return messages.rendered(template.channel, await self._renderer.render(template, use))


def service(servicer: Templates) -> Service:
    return Service(NAME, lambda server: templates_pb2_grpc.add_TemplatesServicer_to_server(servicer, server))


def _tenant() -> str:
    return current_call.get().tenant
