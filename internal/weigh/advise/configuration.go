// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"bytes"
	"fmt"
	"net/netip"
	"text/template"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Place holds the names and addresses that a configuration needs and the answers lack.
type Place struct {
	Interface string
	VIP       netip.Addr
	// Backends are in the order of their names.
	Backends []netip.Addr
	// Pool is the address that full NAT sends from.
	Pool netip.Addr
}

// DefaultPlace has addresses that are reserved for documentation (RFC 5737), which must be replaced.
func DefaultPlace(n Network) Place {
	p := Place{Interface: "eth0", VIP: netip.MustParseAddr("192.0.2.100"), Pool: netip.MustParseAddr("192.0.2.99")}
	first := "192.0.2.11"
	if n == Routed {
		first = "198.51.100.11"
	}
	p.Backends = []netip.Addr{netip.MustParseAddr(first), netip.MustParseAddr(first).Next()}
	return p
}

var configurationText = template.Must(template.New("configuration").Parse(`# Made by jeoul advise:
# {{.Summary}}
# Replace interface and addresses by yours, and check it: jeoul run --check -c FILE
interface: {{.Interface}}
{{- if eq .Sharing "vrrp"}}
# The others have the same file with another priority.
vrrp: {id: 51, priority: 150, interval: 100ms}
{{- else if eq .Sharing "bgp"}}
# The others have the same file with a router_id of their own; the peer is your router.
bgp:
  asn: 64512
  router_id: 192.0.2.10
  peers: [{address: 192.0.2.1, asn: 64513}]
{{- end}}
{{- if eq .Mode "fullnat"}}
fullnat: {addresses: ["{{.Pool}}"]}
{{- end}}
services:
  - name: {{.Name}}
    vip: "{{.VIP}}"
    port: {{.Port}}
{{- if .UDP}}
    protocol: udp
{{- end}}
    mode: {{.Mode}}
    scheduler: {{.Scheduler}}
{{- if eq .Mode "proxy"}}
{{- if .TLS}}
    # Until a certificate is named, this port speaks HTTP without TLS: certificates: [/etc/ssl/private/shop.pem]
{{- end}}
    proxy: { {{- .Proxy -}} }
{{- end}}
{{- if .Check}}
    check: {{.Check}}
{{- end}}
    backends:
{{- range $i, $b := .Backends}}
      - {name: {{$.Name}}{{$i}}, address: "{{$b}}"}
{{- end}}
`))

// ports are the customary ports of a protocol's services.
var ports = map[Speaks]int{HTTP: 80, HTTPS: 443, TCP: 7000, UDP: 7000, DNS: 53}

// Configuration returns a configuration of the advised mode, checked like a file by jeoul run --check. It is empty if
// the verdict is UseNone.
func (v *Advice) Configuration(p Place) ([]byte, error) {
	if v.Verdict == UseNone {
		return nil, nil
	}
	name := string(v.Answers.Speaks)
	if v.Answers.Speaks.web() {
		name = "web"
	}
	var text bytes.Buffer
	err := configurationText.Execute(&text, struct {
		*Advice
		Place
		Name, Proxy, Check string
		Port               int
		UDP, TLS           bool
	}{v, p, name, v.proxy(), v.check(), ports[v.Answers.Speaks], v.Answers.Speaks.datagrams(),
		v.Answers.Speaks == HTTPS})
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	if _, err := config.Parse("jeoul.yaml", text.Bytes()); err != nil {
		return nil, fmt.Errorf("the advised configuration is refused: %w", err)
	}
	return text.Bytes(), nil
}

// proxy returns the keys of mode proxy.
func (v *Advice) proxy() string {
	switch {
	case v.Mode != lb.ModeProxy:
		return ""
	case v.Answers.Speaks.web():
		return "speaks: http"
	case v.Answers.ClientAddress == InHeader:
		return "speaks: tcp, send_proxy: 2"
	}
	return "speaks: tcp"
}

// check returns the health check of the protocol.
func (v *Advice) check() string {
	if v.Answers.Speaks.datagrams() {
		return ""
	}
	return "tcp"
}
