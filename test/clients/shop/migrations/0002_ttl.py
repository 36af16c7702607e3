from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "SELECT ttl.create_container('shop_basket', 3600)",
            "SELECT ttl.drop_container('shop_basket', true)",
        ),
        migrations.RunSQL(
            "ALTER TABLE shop_line ADD FOREIGN KEY (basket_id) REFERENCES shop_basket ON DELETE CASCADE",
            "ALTER TABLE shop_line DROP CONSTRAINT shop_line_basket_id_fkey",
        ),
    ]
