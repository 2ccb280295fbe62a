"""A view that writes, enqueues, and perhaps fails."""

from django.http import HttpResponse
from django.urls import path

from desk.models import Note
from desk.tasks import add


def note(request, ending):
    Note.objects.create(text=ending)
    result = add.enqueue(1)
    if ending == "bad":
        raise RuntimeError(result.id)
    return HttpResponse(result.id)


urlpatterns = [path("notes/<str:ending>", note)]
