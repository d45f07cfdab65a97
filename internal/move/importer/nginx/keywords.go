// SPDX-License-Identifier: Apache-2.0

package nginx

import "github.com/jeoul/jeoul/internal/move/importer/draft"

// Places of Keywords: outside of all blocks, in stream and its servers, in http, its servers and locations, in
// upstreams, and as parameters of listen.
const (
	inMain     = "main"
	inStream   = "stream"
	inHTTP     = "http"
	inUpstream = "upstream"
	inListen   = "listen"
)

// Why a directive changes nothing, where several have one reason.
const (
	ownProcess = "is of nginx's processes"
	ownSockets = "is of nginx's own sockets: the bytes that either side gets are the same"
	ownBuffers = "bounds nginx's memory, and no request"
	ownPages   = "is of pages that nginx itself answers by, and a server that does is left out"
	ownTables  = "is of the memory for nginx's tables"
	ownPool    = "says how many idle connections to a server nginx keeps for the next request, and not which server gets that"
	ownCache   = "is of a cache of answers, which are the backends' own"
	saves      = "saves handshakes; who is served stays the same"
)

// Keywords are those that change nothing of what clients and backends see.
var Keywords = draft.Keywords{
	{Where: inMain, Name: "daemon", Example: "daemon off;", Why: ownProcess},
	{Where: inMain, Name: "debug_points", Example: "debug_points stop;", Why: ownProcess},
	{Where: inMain, Name: "env", Example: "env TZ;", Why: ownProcess},
	{Where: inMain, Name: "error_log", Example: "error_log /dev/null;", Why: "says what nginx logs of itself"},
	{Where: inMain, Name: "events", Example: "", Why: ownProcess},
	{Where: inMain, Name: "load_module", Example: "", Why: "brings directives, each of which has a remark of its own where it is not carried over"},
	{Where: inMain, Name: "lock_file", Example: "lock_file /tmp/nginx.lock;", Why: ownProcess},
	{Where: inMain, Name: "master_process", Example: "master_process on;", Why: ownProcess},
	{Where: inMain, Name: "pcre_jit", Example: "pcre_jit on;", Why: ownProcess},
	{Where: inMain, Name: "pid", Example: "", Why: ownProcess},
	{Where: inMain, Name: "thread_pool", Example: "thread_pool one threads=1;", Why: ownProcess},
	{Where: inMain, Name: "timer_resolution", Example: "timer_resolution 100ms;", Why: ownProcess},
	{Where: inMain, Name: "user", Example: "user root;", Why: ownProcess},
	{Where: inMain, Name: "worker_cpu_affinity", Example: "worker_cpu_affinity auto;", Why: ownProcess},
	{Where: inMain, Name: "worker_priority", Example: "worker_priority 0;", Why: ownProcess},
	{Where: inMain, Name: "worker_processes", Example: "worker_processes 1;", Why: ownProcess},
	{Where: inMain, Name: "worker_rlimit_core", Example: "worker_rlimit_core 1m;", Why: ownProcess},
	{Where: inMain, Name: "worker_rlimit_nofile", Example: "worker_rlimit_nofile 1024;", Why: ownProcess},
	{Where: inMain, Name: "worker_shutdown_timeout", Example: "worker_shutdown_timeout 10s;", Why: ownProcess},
	{Where: inMain, Name: "working_directory", Example: "working_directory /tmp;", Why: ownProcess},

	{Where: inStream, Name: "variables_hash_bucket_size", Example: "variables_hash_bucket_size 128;", Why: ownTables},
	{Where: inStream, Name: "variables_hash_max_size", Example: "variables_hash_max_size 1024;", Why: ownTables},
	{Where: inStream, Name: "map_hash_bucket_size", Example: "map_hash_bucket_size 128;", Why: ownTables},
	{Where: inStream, Name: "map_hash_max_size", Example: "map_hash_max_size 2048;", Why: ownTables},
	{Where: inStream, Name: "log_format", Example: "log_format a '$remote_addr';", Why: "says how nginx logs; each log has a remark of its own"},
	{Where: inStream, Name: "map", Example: "map $remote_addr $a { default b; }", Why: "gives a value to a variable, and a server that goes by one is left out"},
	{Where: inStream, Name: "geo", Example: "geo $a { default b; }", Why: "gives a value to a variable, and a server that goes by one is left out"},
	{Where: inStream, Name: "split_clients", Example: "split_clients $remote_addr $a { * b; }", Why: "gives a value to a variable, and a server that goes by one is left out"},
	{Where: inStream, Name: "limit_conn_zone", Example: "limit_conn_zone $remote_addr zone=a:1m;", Why: "makes a table, and a server that limits by one is left out"},
	{Where: inStream, Name: "set", Example: "", Why: "gives a value to a variable, and a server that goes by one is left out"},
	{Where: inStream, Name: "open_log_file_cache", Example: "open_log_file_cache max=10;", Why: "says how nginx logs; each log has a remark of its own"},
	{Where: inStream, Name: "preread_buffer_size", Example: "preread_buffer_size 16k;", Why: ownBuffers},
	{Where: inStream, Name: "preread_timeout", Example: "preread_timeout 30s;", Why: "bounds how long nginx waits for what chooses an upstream, and a server where something does is left out"},
	{Where: inStream, Name: "ssl_preread", Example: "ssl_preread on;", Why: "reads what chooses an upstream, and a server where something does is left out"},
	{Where: inStream, Name: "proxy_buffer_size", Example: "proxy_buffer_size 16k;", Why: ownBuffers},
	{Where: inStream, Name: "proxy_connect_timeout", Example: "proxy_connect_timeout 1s;", Why: "says when nginx tries another server; here a client sends its SYN again, and outliers takes out a backend that does not answer"},
	{Where: inStream, Name: "proxy_half_close", Example: "proxy_half_close on;", Why: "keeps a connection that one side has ended, as Jeoul does"},
	{Where: inStream, Name: "proxy_socket_keepalive", Example: "proxy_socket_keepalive on;", Why: "has nginx's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inStream, Name: "resolver", Example: "resolver 127.0.0.1;", Why: "is of names that a variable holds, and a server that goes by one is left out"},
	{Where: inStream, Name: "resolver_timeout", Example: "resolver_timeout 3s;", Why: "is of names that a variable holds, and a server that goes by one is left out"},
	{Where: inStream, Name: "tcp_nodelay", Example: "tcp_nodelay on;", Why: ownSockets},
	{Where: inStream, Name: "ssl_session_cache", Example: "ssl_session_cache off;", Why: "is of TLS, and an address that ends it is left out"},
	{Where: inStream, Name: "ssl_session_timeout", Example: "ssl_session_timeout 5m;", Why: "is of TLS, and an address that ends it is left out"},
	{Where: inStream, Name: "status_zone", Example: "", Why: "names it in nginx's statistics"},
	{Where: inStream, Name: "proxy_protocol_timeout", Example: "proxy_protocol_timeout 30s;", Why: "is of the PROXY protocol, and an address that takes it is left out"},

	{Where: inHTTP, Name: "variables_hash_bucket_size", Example: "variables_hash_bucket_size 128;", Why: ownTables},
	{Where: inHTTP, Name: "variables_hash_max_size", Example: "variables_hash_max_size 1024;", Why: ownTables},
	{Where: inHTTP, Name: "map_hash_bucket_size", Example: "map_hash_bucket_size 128;", Why: ownTables},
	{Where: inHTTP, Name: "map_hash_max_size", Example: "map_hash_max_size 2048;", Why: ownTables},
	{Where: inHTTP, Name: "sendfile", Example: "sendfile on;", Why: ownPages},
	{Where: inHTTP, Name: "sendfile_max_chunk", Example: "sendfile_max_chunk 1m;", Why: ownPages},
	{Where: inHTTP, Name: "aio", Example: "aio off;", Why: ownPages},
	{Where: inHTTP, Name: "directio", Example: "directio off;", Why: ownPages},
	{Where: inHTTP, Name: "types", Example: "types { text/html html; }", Why: ownPages},
	{Where: inHTTP, Name: "default_type", Example: "default_type text/plain;", Why: ownPages},
	{Where: inHTTP, Name: "types_hash_max_size", Example: "types_hash_max_size 2048;", Why: ownTables},
	{Where: inHTTP, Name: "types_hash_bucket_size", Example: "types_hash_bucket_size 64;", Why: ownTables},
	{Where: inHTTP, Name: "root", Example: "root /var/empty;", Why: ownPages},
	{Where: inHTTP, Name: "index", Example: "index index.html;", Why: ownPages},
	{Where: inHTTP, Name: "charset", Example: "charset utf-8;", Why: "is of answers without a charset; a backend that says one is not changed"},
	{Where: inHTTP, Name: "autoindex", Example: "autoindex off;", Why: ownPages},
	{Where: inHTTP, Name: "etag", Example: "etag on;", Why: ownPages},
	{Where: inHTTP, Name: "log_not_found", Example: "log_not_found off;", Why: ownPages},
	{Where: inHTTP, Name: "log_subrequest", Example: "log_subrequest off;", Why: "says how nginx logs; each log has a remark of its own"},
	{Where: inHTTP, Name: "open_file_cache", Example: "open_file_cache off;", Why: ownPages},
	{Where: inHTTP, Name: "server_tokens", Example: "server_tokens off;", Why: ownPages},
	{Where: inHTTP, Name: "port_in_redirect", Example: "port_in_redirect off;", Why: ownPages},
	{Where: inHTTP, Name: "server_name_in_redirect", Example: "server_name_in_redirect off;", Why: ownPages},
	{Where: inHTTP, Name: "absolute_redirect", Example: "absolute_redirect off;", Why: ownPages},
	{Where: inHTTP, Name: "msie_padding", Example: "msie_padding off;", Why: ownPages},
	{Where: inHTTP, Name: "recursive_error_pages", Example: "recursive_error_pages off;", Why: ownPages},
	{Where: inHTTP, Name: "tcp_nopush", Example: "tcp_nopush on;", Why: ownSockets},
	{Where: inHTTP, Name: "tcp_nodelay", Example: "tcp_nodelay on;", Why: ownSockets},
	{Where: inHTTP, Name: "reset_timedout_connection", Example: "reset_timedout_connection off;", Why: ownSockets},
	{Where: inHTTP, Name: "lingering_close", Example: "lingering_close on;", Why: ownSockets},
	{Where: inHTTP, Name: "lingering_time", Example: "lingering_time 30s;", Why: ownSockets},
	{Where: inHTTP, Name: "lingering_timeout", Example: "lingering_timeout 5s;", Why: ownSockets},
	{Where: inHTTP, Name: "proxy_http_version", Example: "proxy_http_version 1.1;", Why: "Jeoul speaks HTTP/1.1 to backends, which answer a request of 1.0 alike"},
	{Where: inHTTP, Name: "proxy_socket_keepalive", Example: "proxy_socket_keepalive on;", Why: "has nginx's kernel ask whether the other end is there; either end may do so itself"},
	{Where: inHTTP, Name: "proxy_buffering", Example: "proxy_buffering off;", Why: "says whether nginx keeps an answer until the client takes it; its bytes stay the same"},
	{Where: inHTTP, Name: "proxy_request_buffering", Example: "proxy_request_buffering off;", Why: "says whether nginx keeps a request until all of it is there; its bytes stay the same"},
	{Where: inHTTP, Name: "proxy_buffers", Example: "proxy_buffers 8 16k;", Why: ownBuffers},
	{Where: inHTTP, Name: "proxy_buffer_size", Example: "proxy_buffer_size 16k;", Why: ownBuffers},
	{Where: inHTTP, Name: "proxy_busy_buffers_size", Example: "proxy_busy_buffers_size 16k;", Why: ownBuffers},
	{Where: inHTTP, Name: "proxy_max_temp_file_size", Example: "proxy_max_temp_file_size 0;", Why: ownBuffers},
	{Where: inHTTP, Name: "proxy_temp_file_write_size", Example: "proxy_temp_file_write_size 16k;", Why: ownBuffers},
	{Where: inHTTP, Name: "proxy_temp_path", Example: "", Why: ownBuffers},
	{Where: inHTTP, Name: "client_body_temp_path", Example: "", Why: ownBuffers},
	{Where: inHTTP, Name: "fastcgi_temp_path", Example: "", Why: ownBuffers},
	{Where: inHTTP, Name: "uwsgi_temp_path", Example: "", Why: ownBuffers},
	{Where: inHTTP, Name: "scgi_temp_path", Example: "", Why: ownBuffers},
	{Where: inHTTP, Name: "client_body_buffer_size", Example: "client_body_buffer_size 16k;", Why: ownBuffers},
	{Where: inHTTP, Name: "client_header_buffer_size", Example: "client_header_buffer_size 1k;", Why: ownBuffers},
	{Where: inHTTP, Name: "connection_pool_size", Example: "connection_pool_size 512;", Why: ownBuffers},
	{Where: inHTTP, Name: "request_pool_size", Example: "request_pool_size 4k;", Why: ownBuffers},
	{Where: inHTTP, Name: "output_buffers", Example: "output_buffers 2 32k;", Why: ownBuffers},
	{Where: inHTTP, Name: "postpone_output", Example: "postpone_output 1460;", Why: ownBuffers},
	{Where: inHTTP, Name: "proxy_cache", Example: "proxy_cache off;", Why: ownCache},
	{Where: inHTTP, Name: "proxy_cache_bypass", Example: "proxy_cache_bypass $http_pragma;", Why: ownCache},
	{Where: inHTTP, Name: "proxy_no_cache", Example: "proxy_no_cache $http_pragma;", Why: ownCache},
	{Where: inHTTP, Name: "proxy_cache_path", Example: "", Why: ownCache},
	{Where: inHTTP, Name: "proxy_cache_key", Example: "proxy_cache_key $uri;", Why: ownCache},
	{Where: inHTTP, Name: "proxy_cache_valid", Example: "proxy_cache_valid 200 1m;", Why: ownCache},
	{Where: inHTTP, Name: "proxy_cache_use_stale", Example: "proxy_cache_use_stale off;", Why: ownCache},
	{Where: inHTTP, Name: "proxy_cache_lock", Example: "proxy_cache_lock off;", Why: ownCache},
	{Where: inHTTP, Name: "server_names_hash_bucket_size", Example: "server_names_hash_bucket_size 128;", Why: ownTables},
	{Where: inHTTP, Name: "server_names_hash_max_size", Example: "server_names_hash_max_size 1024;", Why: ownTables},
	{Where: inHTTP, Name: "proxy_headers_hash_bucket_size", Example: "proxy_headers_hash_bucket_size 128;", Why: ownTables},
	{Where: inHTTP, Name: "proxy_headers_hash_max_size", Example: "proxy_headers_hash_max_size 1024;", Why: ownTables},
	{Where: inHTTP, Name: "map", Example: "map $http_upgrade $upgrade { default a; }", Why: "gives a value to a variable, and what goes by one has a remark of its own, or its server is left out"},
	{Where: inHTTP, Name: "geo", Example: "geo $a { default b; }", Why: "gives a value to a variable, and what goes by one has a remark of its own, or its server is left out"},
	{Where: inHTTP, Name: "limit_req_zone", Example: "limit_req_zone $remote_addr zone=r:1m rate=1r/s;", Why: "makes a table, and a server that limits by one is left out"},
	{Where: inHTTP, Name: "limit_conn_zone", Example: "limit_conn_zone $remote_addr zone=c:1m;", Why: "makes a table, and a server that limits by one is left out"},
	{Where: inHTTP, Name: "log_format", Example: "log_format a '$remote_addr';", Why: "says how nginx logs; each log has a remark of its own"},
	{Where: inHTTP, Name: "ssl_session_cache", Example: "ssl_session_cache off;", Why: saves},
	{Where: inHTTP, Name: "ssl_session_timeout", Example: "ssl_session_timeout 5m;", Why: saves},
	{Where: inHTTP, Name: "ssl_session_tickets", Example: "ssl_session_tickets off;", Why: saves},
	{Where: inHTTP, Name: "ssl_buffer_size", Example: "ssl_buffer_size 16k;", Why: ownBuffers},
	{Where: inHTTP, Name: "resolver", Example: "resolver 127.0.0.1;", Why: "is of names that a variable holds, and a server that goes by one is left out"},
	{Where: inHTTP, Name: "resolver_timeout", Example: "resolver_timeout 3s;", Why: "is of names that a variable holds, and a server that goes by one is left out"},

	{Where: inUpstream, Name: "zone", Example: "zone app 64k;", Why: "has nginx's processes share what they know of the servers"},
	{Where: inUpstream, Name: "keepalive", Example: "keepalive 32;", Why: ownPool},
	{Where: inUpstream, Name: "keepalive_requests", Example: "keepalive_requests 100;", Why: ownPool},
	{Where: inUpstream, Name: "keepalive_time", Example: "keepalive_time 1h;", Why: ownPool},
	{Where: inUpstream, Name: "keepalive_timeout", Example: "keepalive_timeout 60s;", Why: ownPool},

	{Where: inListen, Name: "backlog", Example: "backlog=511", Why: "bounds the connections that the kernel keeps until nginx takes them"},
	{Where: inListen, Name: "bind", Example: "bind", Why: "says whether an address has a socket of its own"},
	{Where: inListen, Name: "deferred", Example: "deferred", Why: "has the kernel wait for the first data; who is served stays the same"},
	{Where: inListen, Name: "fastopen", Example: "fastopen=3", Why: "saves a round trip; clients without it are served the same"},
	{Where: inListen, Name: "rcvbuf", Example: "rcvbuf=64k", Why: ownSockets},
	{Where: inListen, Name: "sndbuf", Example: "sndbuf=64k", Why: ownSockets},
	{Where: inListen, Name: "reuseport", Example: "reuseport", Why: "says how many sockets nginx opens for one address"},
	{Where: inListen, Name: "setfib", Example: "", Why: "is of FreeBSD"},
	{Where: inListen, Name: "so_keepalive", Example: "so_keepalive=on", Why: "has nginx's kernel ask whether the other end is there; either end may do so itself"},
}
