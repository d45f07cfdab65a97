// SPDX-License-Identifier: Apache-2.0

package lb

import "time"

// Proxy has the settings that only services of mode proxy have. The engine ends clients' connections and opens its own
// to backends.
type Proxy struct {
	// Speaks is the application protocol that the engine parses; empty stands for SpeaksTCP.
	Speaks Speaks `json:"speaks,omitempty"`
	// Certificates are paths of PEM files, each with a certificate, its chain and its key; which one a client
	// gets goes by SNI, and the first where none fits. None: the service is without TLS.
	Certificates []string `json:"certificates,omitempty"`
	// NoHTTP2: HTTP/2 is not offered to clients over TLS.
	NoHTTP2 bool `json:"no_http2,omitempty"`
	// Routes are tried in order; a request that none fits goes to all backends of the service.
	Routes []Route `json:"routes,omitempty"`
	// NoForwardedFor: requests are not given X-Forwarded-For with the client's address, nor X-Forwarded-Proto: those
	// that clients sent are passed on.
	NoForwardedFor bool `json:"no_forwarded_for,omitempty"`
	// SendProxy is the version, 1 or 2, of the PROXY protocol header that backends' connections begin with,
	// and AcceptProxy says that clients' begin with one; 0: there is none.
	SendProxy   uint8 `json:"send_proxy,omitempty"`
	AcceptProxy bool  `json:"accept_proxy,omitempty"`
	// BackendTLS is how connections to backends are encrypted; empty: they are not.
	BackendTLS BackendTLS `json:"backend_tls,omitempty"`
	// BackendCA is the path of a PEM file of authorities that vouch for backends; empty: the system's do.
	BackendCA string `json:"backend_ca,omitempty"`
	// SecurityHeaders: responses bear Strict-Transport-Security (over TLS, RFC 6797), X-Content-Type-Options,
	// X-Frame-Options and Referrer-Policy, unless backends set their own.
	SecurityHeaders bool `json:"security_headers,omitempty"`
	// RequestHeaders and ResponseHeaders are set, or with an empty value removed.
	RequestHeaders  []Header `json:"request_headers,omitempty"`
	ResponseHeaders []Header `json:"response_headers,omitempty"`
	// RedirectTLS: requests are answered by a redirect to the same address over HTTPS.
	RedirectTLS bool `json:"redirect_tls,omitempty"`
	// Cookie names a cookie that keeps a client at its backend; empty: only Persistence does, by address.
	Cookie string `json:"cookie,omitempty"`
	// Retries is how many further tries a connection to a backend gets, the last of them to another backend.
	// nil: the engine's default.
	Retries *uint8 `json:"retries,omitempty"`
	// Timeouts of the engine; 0: its defaults.
	Timeouts ProxyTimeouts `json:"timeouts,omitzero"`
	// Frontend and Back are lines of the engine's own language, for settings that have no key, put behind ours into the
	// section of the service's clients, and into those of its backends.
	Frontend string `json:"frontend,omitempty"`
	Back     string `json:"back,omitempty"`
}

// SecurityHeadersOf are the fields that Proxy.SecurityHeaders stands for, of a service with TLS or without.
func SecurityHeadersOf(tls bool) []Header {
	headers := []Header{
		{Name: "X-Content-Type-Options", Value: "nosniff"}, {Name: "X-Frame-Options", Value: "SAMEORIGIN"},
		{Name: "Referrer-Policy", Value: "strict-origin-when-cross-origin"},
	}
	if tls {
		headers = append(headers, Header{Name: "Strict-Transport-Security", Value: "max-age=31536000"})
	}
	return headers
}

// ProxyTimeouts bound how long a side of a proxied connection may take; 0 is the default.
type ProxyTimeouts struct {
	Connect   time.Duration `json:"connect_ns,omitempty"`
	Client    time.Duration `json:"client_ns,omitempty"`
	Server    time.Duration `json:"server_ns,omitempty"`
	Request   time.Duration `json:"request_ns,omitempty"`
	KeepAlive time.Duration `json:"keep_alive_ns,omitempty"`
	// Tunnel is for upgraded connections, such as WebSocket.
	Tunnel time.Duration `json:"tunnel_ns,omitempty"`
	// Queue is how long a request waits for a backend that is full.
	Queue time.Duration `json:"queue_ns,omitempty"`
}

// Route sends requests to some of a service's backends.
type Route struct {
	// Hosts are names of the Host header, without port; one that begins with "*." stands for all below it. None: any.
	Hosts []string `json:"hosts,omitempty"`
	// Paths are beginnings of the path, which end at a slash or with the path: "/api" fits "/api" and "/api/v1", and
	// not "/apis". None: any.
	Paths []string `json:"paths,omitempty"`
	// Backends are names of the service's backends.
	Backends []string `json:"backends"`
}

// ProxyEngine has the settings that all services of mode proxy share.
type ProxyEngine struct {
	// Threads is how many the engine has; 0: one for each CPU it may use.
	Threads uint16 `json:"threads,omitempty"`
	// CPUMap are lines of HAProxy's cpu-map, as in "auto:1/1-4 0-3".
	CPUMap []string `json:"cpu_map,omitempty"`
	// Connections is the most connections of all services; 0: as many as open files allow.
	Connections uint32 `json:"connections,omitempty"`
	// HardStop is how long a process that a reload has replaced keeps its connections; 0: DefaultHardStop.
	HardStop time.Duration `json:"hard_stop_ns,omitempty"`
	// User and Group are the user and the group of the engine's process; empty: DefaultProxyUser.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
	// Program is the path of the engine's program; empty: haproxy, found by PATH and in /usr/sbin.
	Program string `json:"program,omitempty"`
	// Global are lines of the engine's own language for its section "global".
	Global string `json:"global,omitempty"`
}

// Defaults of the proxy engine.
const (
	DefaultHardStop  = 30 * time.Second
	DefaultProxyUser = "haproxy"
	// DefaultProxyRetries is how many further tries a connection to a backend gets.
	DefaultProxyRetries = 3
)

// DefaultProxyTimeouts are the engine's where a service sets none. Those of a client and of a server are for
// SpeaksHTTP, where they bound a silence within a request; with SpeaksTCP, where silence is no sign of a fault, they
// are DefaultTimeouts.Established.
var DefaultProxyTimeouts = ProxyTimeouts{
	Connect: 5 * time.Second, Client: time.Minute, Server: time.Minute,
	Request: 10 * time.Second, KeepAlive: time.Minute, Tunnel: time.Hour, Queue: 10 * time.Second,
}

// WithDefaults returns the timeouts with the default for each that is 0.
func (t ProxyTimeouts) WithDefaults(speaks Speaks) ProxyTimeouts {
	standard := DefaultProxyTimeouts
	if speaks != SpeaksHTTP {
		standard.Client, standard.Server = DefaultTimeouts.Established, DefaultTimeouts.Established
	}
	for _, f := range []struct{ have, standard *time.Duration }{
		{&t.Connect, &standard.Connect}, {&t.Client, &standard.Client}, {&t.Server, &standard.Server},
		{&t.Request, &standard.Request}, {&t.KeepAlive, &standard.KeepAlive}, {&t.Tunnel, &standard.Tunnel},
		{&t.Queue, &standard.Queue},
	} {
		if *f.have == 0 {
			*f.have = *f.standard
		}
	}
	return t
}

// Speaks is a protocol above TCP that the proxy engine understands.
type Speaks string

// The application protocols that the proxy engine speaks.
const (
	// SpeaksTCP passes bytes on.
	SpeaksTCP Speaks = "tcp"
	// SpeaksHTTP routes each request by itself: HTTP/1.1, and HTTP/2 over TLS.
	SpeaksHTTP Speaks = "http"
)

// UnmarshalText accepts "tcp" and "http"; anything else is ErrUnknownSpeaks.
func (s *Speaks) UnmarshalText(text []byte) error {
	return oneOf(s, text, []Speaks{SpeaksTCP, SpeaksHTTP}, ErrUnknownSpeaks)
}

// BackendTLS is how connections to backends are encrypted.
type BackendTLS string

// How connections to backends are encrypted.
const (
	// BackendTLSVerified asks backends for a certificate that an authority vouches for.
	BackendTLSVerified BackendTLS = "verify"
	// BackendTLSUnverified takes any certificate.
	BackendTLSUnverified BackendTLS = "no-verify"
)

// UnmarshalText accepts "verify" and "no-verify"; anything else is ErrUnknownBackendTLS.
func (b *BackendTLS) UnmarshalText(text []byte) error {
	return oneOf(b, text, []BackendTLS{BackendTLSVerified, BackendTLSUnverified}, ErrUnknownBackendTLS)
}
