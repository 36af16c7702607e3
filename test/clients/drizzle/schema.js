// drizzle/schema.js - what drizzle.js works with
'use strict';

const { sql } = require('drizzle-orm');
const { index, integer, jsonb, pgTable, text, timestamp } = require('drizzle-orm/pg-core');

exports.sessions = pgTable('sessions', {
	id: text('id').primaryKey(),
	data: jsonb('data').notNull(),
	visits: integer('visits').notNull().default(0),
	_ts: timestamp('_ts', { withTimezone: true }).notNull().default(sql`clock_timestamp()`),
	ttl: integer('ttl')
}, (table) => [
	index('sessions__ts_idx').on(table._ts).where(sql`ttl IS NULL`),
	index('sessions_item_expiry_idx').using('btree', sql`ttl.item_expiry(_ts, ttl)`).where(sql`ttl > 0`)
]);

// with a deadline of its own, and nothing of ttl
exports.invitations = pgTable('invitations', {
	email: text('email').primaryKey(),
	expires: timestamp('expires', { withTimezone: true })
}, (table) => [index('invitations_expires_idx').on(table.expires)]);
