"""Where things are."""

from django.urls import path

from shop import views

urlpatterns = [
    path("orders", views.orders),
    path("orders/<int:order_id>/<str:result_id>", views.order),
]
