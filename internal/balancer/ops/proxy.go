// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// ProxyEngine is the process behind the services of mode proxy.
type ProxyEngine struct {
	// Program is the path of HAProxy, and Version its version.
	Program string `json:"program"`
	Version string `json:"version"`
	// PID is the master's; 0: it does not run.
	PID int `json:"pid"`
	// Started is when it was started.
	Started time.Time `json:"started,omitzero"`
	// Reloads is the number of reloads since then, and Workers the number of running workers, including replaced ones
	// that still have connections.
	Reloads int `json:"reloads"`
	Workers int `json:"workers"`
	// Problem names the fault and the remedy.
	Problem string `json:"trouble,omitempty"`
}

// ProxiedService has the settings and counters that only services of mode proxy have.
type ProxiedService struct {
	// Speaks is the application protocol that the engine parses.
	Speaks lb.Speaks `json:"speaks" enum:"tcp,http"`
	// TLS: clients connect with TLS.
	TLS bool `json:"tls"`
	// Connections is the number of accepted connections of clients. BytesIn came from them, and BytesOut went to them.
	Connections uint64 `json:"connections"`
	BytesIn     uint64 `json:"bytes_in"`
	BytesOut    uint64 `json:"bytes_out"`
	// Denied is the number of those rejected by a rule.
	Denied uint64 `json:"denied"`
	Proxied
}

// Proxied has the proxy engine's counters of a service, or of a backend.
type Proxied struct {
	// Requests is the number of answered requests, and Responses counts the answers by the first digit of their status;
	// only with speaks: http.
	Requests  uint64    `json:"requests"`
	Responses Responses `json:"responses"`
	// Failed is the number of failed connections to backends; Retried of those tried again there, and Redispatched of
	// those tried at another backend.
	Failed       uint64 `json:"failed"`
	Retried      uint64 `json:"retried"`
	Redispatched uint64 `json:"redispatched"`
	// Queued is the number of requests that wait for a backend at its limit.
	Queued uint64 `json:"queued"`
}

// Responses are counts of responses by the first digit of their status.
type Responses struct {
	Informational uint64 `json:"1xx"`
	Successful    uint64 `json:"2xx"`
	Redirection   uint64 `json:"3xx"`
	ClientError   uint64 `json:"4xx"`
	ServerError   uint64 `json:"5xx"`
	Other         uint64 `json:"other"`
}
