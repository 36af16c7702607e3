// test/clients/lib.js - what the programs for Node.js share
//
// The driver, test/t/700_clients.pl, says by PGHOST, PGDATABASE etc. where the server is.  A program
// works as the application would, whose role owns its tables and is no superuser; an exception
// ends it with a non-zero status.
'use strict';

const assert = require('node:assert/strict');
const { Pool } = require('pg');

const pool = new Pool({ max: 5 });
pool.on('error', (error) => { throw error; });

// A statement, or several without parameters; the rows of the (last) result
async function sql(text, values) {
	const result = await pool.query(text, values);
	return (Array.isArray(result) ? result.at(-1) : result).rows;
}

// The same, of which only the first value counts
async function value(text, values) {
	const [row] = await sql(text, values);
	return row && Object.values(row)[0];
}

// Has the rows that meet the condition expire now: they were last changed long ago, or their deadline is over.
async function expire(table, condition = 'true', deadline) {
	await sql(`
		BEGIN;
		SET LOCAL ttl.touch = off;
		UPDATE ${table} SET ${deadline ?? '_ts'} = now() - interval '1 year' WHERE ${condition};
		COMMIT`);
}

// The rows that are stored, expired or not: their owner may see them.
async function stored(table) {
	const client = await pool.connect();
	try {
		await client.query('SET row_security = off');
		return Number((await client.query(`SELECT count(*) FROM ${table}`)).rows[0].count);
	} finally {
		await client.query('RESET row_security');
		client.release();
	}
}

async function waitUntil(condition, what) {
	for (let i = 0; i < 600; i++) {
		if (await condition()) return;
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
	assert.fail(`in vain: ${what}`);
}

// Has the background worker leave the table alone, so that tests can tell what is hidden from what is deleted
async function pause(table) {
	await sql(`SELECT ttl.alter_container('${table}', reaping => false)`);
}

// Lets it work, and waits until it has deleted what has expired.  It doesn't expect rows whose clock was set back, but
// looks when the policy is set.
async function reaped(table) {
	await sql(`
		SELECT ttl.alter_container('${table}', reaping => true);
		SELECT ttl.set_default_ttl('${table}', ttl.default_ttl('${table}'))`);
	await waitUntil(async () => await value(`SELECT ttl.expired_count('${table}') = 0`), `${table} is reaped`);
}

// Runs a program's tests, and lets go of the server.
function main(tests) {
	tests().then(() => pool.end()).catch((error) => {
		console.error(error);
		process.exit(1);
	});
}

module.exports = { assert, pool, sql, value, expire, stored, waitUntil, pause, reaped, main };
