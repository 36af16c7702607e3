from django.db import models


class Basket(models.Model):
    owner = models.TextField(unique=True)
    visits = models.IntegerField(default=0)
    ttl = models.IntegerField(null=True)


class Line(models.Model):
    basket = models.ForeignKey(Basket, models.DO_NOTHING, db_constraint=False)
    item = models.TextField()
