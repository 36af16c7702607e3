# Active Record, of Rails: migrations, models, and timestamps without time zone
require "active_record"

class Raw < ActiveRecord::Base
  self.abstract_class = true
end

Raw.establish_connection(adapter: "postgresql")
ActiveRecord::Base.establish_connection(adapter: "postgresql")
ActiveRecord::Migration.verbose = false

class CreateCarts < ActiveRecord::Migration[6.1]
  def change
    create_table :carts do |t|
      t.text :owner, null: false, index: { unique: true }
      t.integer :visits, null: false, default: 0
      t.timestamps
    end
    create_table :lines do |t|
      t.references :cart, null: false, foreign_key: { on_delete: :cascade }
    end
    create_table :invitations, id: false do |t|
      t.text :email, primary_key: true
      t.datetime :expires_at, index: true
    end
  end
end

class GiveCartsTtl < ActiveRecord::Migration[6.1]
  def up
    execute "SELECT ttl.create_container('carts', '1 hour', ts_column => 'updated_at', ttl_column => NULL)"
    execute "SELECT ttl.create_container('invitations', -1, ts_column => NULL, ttl_column => 'expires_at')"
  end

  def down
    execute "SELECT ttl.drop_container('carts')"
    execute "SELECT ttl.drop_container('invitations')"
  end
end

class Cart < ActiveRecord::Base
  has_many :lines
end

class Line < ActiveRecord::Base
  belongs_to :cart, optional: true
end

class Invitation < ActiveRecord::Base
  self.primary_key = :email
end

def sql(text) = Raw.connection.execute(text).to_a
def value(text) = Raw.connection.select_value(text)

def expire(table, condition, clock)
  sql("BEGIN; SET LOCAL ttl.touch = off; UPDATE #{table} SET #{clock} = now() - interval '1 year' WHERE #{condition}; COMMIT")
end

# The rows that are stored, expired or not: their owner may see them.
def stored(table)
  sql("SET row_security = off")
  value("SELECT count(*) FROM #{table}")
ensure
  sql("RESET row_security")
end

def pause(table) = sql("SELECT ttl.alter_container('#{table}', reaping => false)")

def reaped(table)
  sql("SELECT ttl.alter_container('#{table}', reaping => true)")
  sql("SELECT ttl.set_default_ttl('#{table}', ttl.default_ttl('#{table}'))")
  600.times do
    return if value("SELECT ttl.expired_count('#{table}')") == 0
    sleep 0.05
  end
  raise "in vain: #{table} is reaped"
end

def equal(got, expected)
  got == expected or raise "#{got.inspect} instead of #{expected.inspect}"
end

def fails(error)
  yield
rescue error
  nil
else
  raise "no #{error}"
end

CreateCarts.migrate(:up)
GiveCartsTtl.migrate(:up)
GiveCartsTtl.migrate(:down)
equal sql("SELECT * FROM ttl.containers"), []
GiveCartsTtl.migrate(:up)
pause "carts"

("a".."f").each { |owner| Cart.create!(owner: owner) }
a, b, c = Cart.where(owner: %w[a b c]).order(:owner).to_a
[a, b, c].each { |cart| 2.times { cart.lines.create! } }
expire "carts", "owner IN ('a', 'b')", "updated_at"

# what has expired isn't there
equal Cart.count, 4
equal Cart.find_by(owner: "a"), nil
equal Cart.exists?(a.id), false
fails(ActiveRecord::RecordNotFound) { a.reload }
equal Cart.includes(:lines).order(:owner).map { |cart| [cart.owner, cart.lines.size] }, [["c", 2], ["d", 0], ["e", 0], ["f", 0]]
equal Line.includes(:cart).order(:id).map { |line| line.cart&.owner }, [nil, nil, nil, nil, "c", "c"]
equal Cart.where(owner: %w[a c]).update_all("visits = visits + 1"), 1
equal Cart.where(owner: "b").delete_all, 0
fails(ActiveRecord::InvalidForeignKey) { Line.create!(cart_id: a.id) }

# what was read before it expired, and is saved after, isn't there
a.update!(visits: 5)
equal Cart.find_by(owner: "a"), nil
equal stored("carts"), 6

# keys that have expired are free
Cart.create!(id: a.id, owner: "a")
equal stored("lines"), 4
equal Cart.create_or_find_by!(owner: "b").visits, 0
equal Cart.find_or_create_by!(owner: "b").visits, 0
now = Time.now.utc
expire "carts", "owner = 'b'", "updated_at"
Cart.upsert_all(%w[b c].map { |owner| { owner: owner, visits: 7, created_at: now, updated_at: now } }, unique_by: :owner)
equal Cart.sum(:visits), 14
equal stored("carts"), 6

# each change renews, also one that leaves updated_at alone; the server's clock and Ruby's mean the same
sql("BEGIN; SET LOCAL ttl.touch = off; UPDATE carts SET updated_at = updated_at - interval '59 minutes'; COMMIT")
Cart.where(owner: "c").update_all(visits: 8)
Cart.find_by(owner: "d").touch
fresh = Cart.where(owner: %w[c d]).pluck(:updated_at, Arel.sql("ttl.expires_at(carts)"))
equal fresh.all? { |updated, expires| (Time.now - updated).abs < 60 && (expires - updated).round == 3600 }, true
equal value("SELECT count(*) FROM carts WHERE ttl.time_to_live(carts) > 3500"), 2

# transactions
expire "carts", "owner = 'e'", "updated_at"
Cart.transaction do
  Cart.create!(owner: "e").with_lock { equal Cart.where(owner: "e").count, 1 }
  raise ActiveRecord::Rollback
end
equal Cart.find_by(owner: "e"), nil

# in batches, while the worker deletes
Cart.insert_all((1..1000).map { |i| { owner: "s#{i}", visits: i, created_at: now, updated_at: now } })
expire "carts", "owner LIKE 's%' AND visits % 2 = 1", "updated_at"
read = 0
Cart.where("owner LIKE 's%'").find_each(batch_size: 50) do |cart|
  equal cart.visits % 2, 0
  reaped "carts" if (read += 1) == 10
end
equal read, 500
equal stored("carts"), Cart.count

# deadlines: writing back moves none, and nil is never
{ "a" => -1, "b" => 1, "c" => nil }.each { |email, hours| Invitation.create!(email: email, expires_at: hours && Time.now + hours * 3600) }
equal Invitation.order(:email).pluck(:email), %w[b c]
b = Invitation.find("b")
b.expires_at_will_change!
b.save!
equal Invitation.find("b").expires_at, b.expires_at
Invitation.create!(email: "a", expires_at: Time.now + 3600)
b.update!(expires_at: Time.now - 1)
equal Invitation.count, 2
reaped "invitations"
equal stored("invitations"), 2
