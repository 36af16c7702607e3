// drizzle/config.js - for drizzle-kit
'use strict';

module.exports = {
	dialect: 'postgresql',
	schema: './drizzle/schema.js',
	schemaFilter: ['public'],
	dbCredentials: {
		host: process.env.PGHOST,
		port: Number(process.env.PGPORT),
		user: process.env.PGUSER,
		database: process.env.PGDATABASE,
		ssl: false
	}
};
