# The application of django_orm.py
