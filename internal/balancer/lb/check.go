// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// CheckType is the protocol by which a health check asks.
type CheckType string

// The types of checks.
const (
	// CheckTCP opens a connection and ends it.
	CheckTCP CheckType = "tcp"
	// CheckTLS completes a TLS handshake.
	CheckTLS CheckType = "tls"
	// CheckHTTP sends a request over HTTP, and judges the response.
	CheckHTTP CheckType = "http"
	// CheckDNS sends a query.
	CheckDNS CheckType = "dns"
	// CheckUDP sends a datagram, and judges the answer.
	CheckUDP CheckType = "udp"
	// CheckICMP sends an echo request.
	CheckICMP CheckType = "icmp"
	// CheckGRPC calls grpc.health.v1.Health/Check.
	CheckGRPC CheckType = "grpc"
	// CheckExec runs a program.
	CheckExec CheckType = "exec"
	// CheckAgent reads a line of HAProxy's agent-check protocol.
	CheckAgent CheckType = "agent"
)

// CheckTypes are all of them.
var CheckTypes = []CheckType{CheckTCP, CheckTLS, CheckHTTP, CheckDNS, CheckUDP, CheckICMP, CheckGRPC, CheckExec,
	CheckAgent}

// Via is the way that a check takes to a backend.
type Via string

// The ways.
const (
	// ViaVIP sends to the VIP as the service's packets are sent, so that whatever keeps a
	// backend from serving clients (no VIP on its loopback, no decapsulation) fails the check.
	ViaVIP Via = "vip"
	// ViaAddress sends to the backend's own address, by the kernel's routing.
	ViaAddress Via = "address"
)

// Defaults of a check.
const (
	// DefaultCheckInterval and the counts find a failed backend within DefaultCheckFall
	// intervals and a timeout, and put a load of half a probe a second on a backend.
	DefaultCheckInterval = 2 * time.Second
	DefaultCheckTimeout  = time.Second
	DefaultCheckFall     = 3
	DefaultCheckRise     = 2
	// DefaultCheckMethod and DefaultCheckPath make a request that every server of HTTP answers, and the two below them
	// a query that every name server answers.
	DefaultCheckMethod = "GET"
	DefaultCheckPath   = "/"
	DefaultCheckRecord = "A"
	DefaultCheckCode   = "NOERROR"
	// DefaultPanic has all of up to 100 backends used when none is healthy: then it is more
	// likely that the checks fail than that all backends do at once, and where all have failed
	// clients lose nothing by it. Higher thresholds would send clients to backends that are
	// known to fail while others serve, which is for who plans the capacity to decide.
	DefaultPanic = 1
)

// EndpointWeightHeader is the header field of kube-proxy's answers at a Service's healthCheckNodePort with the number
// of its ready endpoints on the node (Kubernetes, pkg/proxy/healthcheck).
const EndpointWeightHeader = "X-Load-Balancing-Endpoint-Weight"

// Checks are how a service finds which of its backends serve.
type Checks struct {
	// List has the checks of each backend; empty: there is none, and all are taken for healthy.
	List []Check `json:"list,omitempty"`
	// Any: a backend is healthy when one check passes; otherwise all must.
	Any bool `json:"any,omitempty"`
	// Panic is below which share of healthy backends, in per cent, all are used; 0: none,
	// and where no backend is healthy the service has none for new flows.
	Panic uint8 `json:"panic,omitempty"`
	// OnDown is the policy for flows of a backend that fails; empty stands for KeepFlows.
	OnDown OnDown `json:"on_down,omitempty"`
}

// On reports whether anything is asked.
func (c Checks) On() bool { return len(c.List) > 0 }

// ViaIn is the way that the check takes in a service of a mode.
func (c Check) ViaIn(m Mode) Via {
	switch {
	case c.Type == CheckExec:
		return ViaAddress // the program goes its own way
	case c.Via != "":
		return c.Via
	case c.Type == CheckAgent:
		return ViaAddress // it is a program beside the service
	}
	return m.DefaultVia()
}

// Check is a health check of a service's backends.
type Check struct {
	Type CheckType `json:"type"`
	// Via is the path to the backend; empty stands for the usual one of the service's mode.
	Via Via `json:"via,omitempty"`
	// Port is asked in place of the port that the service's packets arrive on at the backend; 0: that.
	Port uint16 `json:"port,omitempty"`
	// Source is the address that the check is sent from; not valid: the kernel's choice.
	Source netip.Addr `json:"source,omitzero"`
	// Interval is the time from the start of a check to the start of the next, and Fast that
	// while the verdict is in doubt (0: Interval).
	Interval time.Duration `json:"interval_ns"`
	Fast     time.Duration `json:"fast_ns,omitempty"`
	// Timeout bounds a check as a whole: from its first packet to the last that it needs.
	Timeout time.Duration `json:"timeout_ns"`
	// Delay is how long a backend that is new is not asked.
	Delay time.Duration `json:"delay_ns,omitempty"`
	// Jitter is the share of the interval by which the start of a check varies, in per cent.
	Jitter uint8 `json:"jitter,omitempty"`
	// Rise is how many passed checks in a row make a backend healthy, and Fall how many failed
	// ones in a row make it unhealthy.
	Rise uint16 `json:"rise"`
	Fall uint16 `json:"fall"`

	// One of these, that of the type, is set; the rest are nil.
	HTTP *HTTPCheck `json:"http,omitempty"`
	TLS  *TLSCheck  `json:"tls,omitempty"` // also with HTTP and GRPC: over TLS
	DNS  *DNSCheck  `json:"dns,omitempty"`
	UDP  *UDPCheck  `json:"udp,omitempty"`
	GRPC *GRPCCheck `json:"grpc,omitempty"`
	Exec *ExecCheck `json:"exec,omitempty"`
}

// HTTPCheck is a request, and the responses that pass.
type HTTPCheck struct {
	// Method and Path are the request's, as in "GET" and "/healthz".
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Host is the request's host; empty: the address and port that are asked.
	Host string `json:"host,omitempty"`
	// Headers are sent, in this order.
	Headers []Header `json:"headers,omitempty"`
	// Status are the status codes that pass; empty: 200..399.
	Status []StatusRange `json:"status,omitempty"`
	// Body is a regular expression (RE2) that the response's body must match; empty: any body.
	Body string `json:"body,omitempty"`
	// HTTP2 asks by HTTP/2: over TLS by ALPN, else with prior knowledge (RFC 9113 section 3.3).
	HTTP2 bool `json:"http2,omitempty"`
	// WeightHeader is the header field of responses that pass whose value, a whole number up to 65535, is the backend's
	// weight in place of the configured one; empty: none. kube-proxy reports the number of a node's ready endpoints so
	// (EndpointWeightHeader).
	WeightHeader string `json:"weight_header,omitempty"`
}

// Header is a header field of a request.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// StatusRange has the status codes First..Last.
type StatusRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// String returns "200" or "200-299".
func (r StatusRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// TLSCheck is how a handshake is made.
type TLSCheck struct {
	// ServerName is sent (SNI, RFC 6066 section 3), and verified.
	ServerName string `json:"server_name,omitempty"`
	// Verify has the certificate verified, against the authorities in the file CA (PEM), or
	// the host's where that is empty.
	Verify bool   `json:"verify,omitempty"`
	CA     string `json:"ca,omitempty"`
	// Expiry warns when the certificate expires within that time; 0: never.
	Expiry time.Duration `json:"expiry_ns,omitempty"`
}

// DNSCheck is a query, and the response that passes.
type DNSCheck struct {
	// Name and Type are the question's, as in "example.com" and "A".
	Name string `json:"name"`
	Type string `json:"type"`
	// Code is the response code that passes, as in "NOERROR".
	Code string `json:"code"`
	// Answer is the data that a record of the answer must have; empty: any or none.
	Answer string `json:"answer,omitempty"`
	// TCP asks over TCP.
	TCP bool `json:"tcp,omitempty"`
}

// UDPCheck is a datagram, and the beginning of its answer. Where both are empty, the backend passes unless an ICMP
// error comes back.
type UDPCheck struct {
	Send   []byte `json:"send,omitempty"`
	Expect []byte `json:"expect,omitempty"`
}

// GRPCCheck names the service that is asked for; empty: the server as a whole.
type GRPCCheck struct {
	Service string `json:"service,omitempty"`
}

// ExecCheck is a program and its arguments; the backend's address and port are in its
// environment. It passes with exit code 0.
type ExecCheck struct {
	Command []string `json:"command"`
}

// DefaultVia returns the way that checks take in a mode unless the configuration says another.
func (m Mode) DefaultVia() Via {
	if m.KeepsPort() {
		return ViaVIP
	}
	return ViaAddress
}

// Datagram reports whether the check's packets are UDP datagrams.
func (c Check) Datagram() bool {
	return c.Type == CheckUDP || c.Type == CheckDNS && (c.DNS == nil || !c.DNS.TCP)
}

// UnmarshalText accepts the name of a type; anything else is ErrUnknownCheck.
func (t *CheckType) UnmarshalText(text []byte) error {
	return oneOf(t, text, CheckTypes, ErrUnknownCheck)
}

// UnmarshalText accepts "vip" and "address"; anything else is ErrUnknownVia.
func (v *Via) UnmarshalText(text []byte) error {
	switch Via(text) {
	case ViaVIP, ViaAddress:
		*v = Via(text)
		return nil
	}
	return fmt.Errorf("%w %q: use %s or %s", ErrUnknownVia, text, ViaVIP, ViaAddress)
}
