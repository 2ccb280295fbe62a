"""What the shop does for browsers."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from shop.models import Order
from shop.tasks import confirm


@csrf_exempt
@require_POST
def orders(request: HttpRequest) -> JsonResponse:
    """Take an order: the row and the job are committed together, or neither is there."""
    with transaction.atomic():
        order = Order.objects.create(item=json.loads(request.body)["item"])
        result = confirm.enqueue(order.id)
    return JsonResponse({"order": order.id, "id": result.id}, status=201)


@require_GET
def order(request: HttpRequest, order_id: int, result_id: str) -> JsonResponse:
    """How far it is."""
    found = get_object_or_404(Order, id=order_id)
    result = confirm.get_result(result_id)
    said = result.return_value if result.is_finished else None
    return JsonResponse({"confirmed": found.confirmed, "status": result.status, "said": said})
