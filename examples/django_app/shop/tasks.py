"""What is done later, by a worker."""

try:
    from django.tasks import task
except ImportError:  # before Django 6.0: the backport
    from django_tasks import task

from shop.models import Order


@task
def confirm(order_id: int) -> str:
    """Tell the customer."""
    order = Order.objects.get(id=order_id)
    order.confirmed = True
    order.save()
    return f"{order.item} is on its way"
