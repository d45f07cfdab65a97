// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// errWords means that a value cannot be written.
var errWords = errors.New("keepalived takes some of its characters for its own; write it by hand")

// check writes a check of a real server. It remarks once per service on a setting that keepalived does not have.
func (w *writer) check(k int, b lb.Backend) {
	c := w.service.Checks.List[k]
	field := w.checkField(k)
	writers := map[lb.CheckType]func(string, lb.Check, lb.Backend) error{
		lb.CheckHTTP: w.http, lb.CheckDNS: w.dns, lb.CheckUDP: w.udp, lb.CheckExec: w.exec,
		lb.CheckICMP: func(_ string, c lb.Check, _ lb.Backend) error {
			w.block("PING_CHECK", func() { w.times(c, "") })
			return nil
		},
	}
	write, known := writers[c.Type]
	if !known {
		write = func(_ string, c lb.Check, b lb.Backend) error { w.tcp(c, b); return nil }
		if c.Type != lb.CheckTCP {
			w.Approximate(field, "check: keepalived has none of type %s; it opens a connection", c.Type)
		}
	}
	if err := write(field, c, b); err != nil {
		w.Left(field, "check: %v", err)
		return
	}
	w.common(field, c)
}

// checkField returns the path of check k of the service.
func (w *writer) checkField(k int) string {
	if w.Written(config.ServiceField(w.i, "check")) {
		return config.ServiceField(w.i, "check")
	}
	return fmt.Sprintf("%s[%d]", config.ServiceField(w.i, "checks"), k)
}

// common carries over the settings that all checks have, and remarks on differences.
func (w *writer) common(field string, c lb.Check) {
	if !w.Written(field + ".type") { // the type alone is given
		w.Carry(field)
	}
	for _, key := range []string{"type", "interval", "fast", "timeout", "fall", "port", "via"} {
		w.Carry(field + "." + key)
	}
	if c.Rise > 1 {
		w.Approximate(field+".rise", "rise: a real server is back after one passed check, not %d", c.Rise)
	}
	if via := c.ViaIn(w.service.Mode); via == lb.ViaVIP {
		w.Approximate(field+".via",
			"via: keepalived asks the real server's own address, not the VIP by way of the service's packets")
	}
}

// times writes how often a check runs and how long it may take. timeout is keepalived's keyword for the check's
// timeout, or "".
func (w *writer) times(c lb.Check, timeout string) {
	w.line("delay_loop %s", seconds(c.Interval))
	if timeout != "" {
		w.line("%s %s", timeout, seconds(c.Timeout))
	}
	w.line("retry %d", c.Fall-1)
	w.line("delay_before_retry %s", seconds(cmp.Or(c.Fast, c.Interval)))
}

// seconds writes a duration in seconds, to the millisecond.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(time.Millisecond).Seconds(), 'f', -1, 64)
}

// place writes the port to check, if it differs from the real server's port.
func (w *writer) place(c lb.Check, b lb.Backend) {
	if c.Port != 0 && c.Port != b.Port {
		w.line("connect_port %d", c.Port)
	}
}

func (w *writer) tcp(c lb.Check, b lb.Backend) {
	w.block("TCP_CHECK", func() {
		w.place(c, b)
		w.times(c, "connect_timeout")
	})
}

// http writes HTTP_GET or SSL_GET, which send a GET request.
func (w *writer) http(field string, c lb.Check, b lb.Backend) error {
	h := c.HTTP
	host, body := h.Host, h.Body
	if c.TLS != nil {
		host = cmp.Or(host, c.TLS.ServerName)
	}
	words := []string{h.Path, host, body}
	for _, word := range words {
		if word != "" && !plain(word) {
			return fmt.Errorf("%q: %w", word, errWords)
		}
	}
	name := "HTTP_GET"
	if c.TLS != nil {
		name = "SSL_GET"
		w.tls(field, c)
	}
	w.block(name, func() {
		w.block("url", func() {
			w.line("path %s", quote(h.Path))
			if host != "" {
				w.line("virtualhost %s", quote(host))
			}
			w.line("status_code %s", statuses(h.Status))
			if body != "" {
				w.line("regex %s", quote(body))
			}
		})
		if c.TLS != nil && c.TLS.ServerName != "" {
			w.line("enable_sni")
		}
		w.place(c, b)
		w.times(c, "connect_timeout")
	})
	for _, key := range []string{"path", "host", "status", "body"} {
		w.Carry(field + "." + key)
	}
	w.Carry(field + ".method")
	if h.Method != lb.DefaultCheckMethod {
		w.Approximate(field+".method", "method: keepalived asks by GET")
	}
	if body != "" {
		w.Approximate(field+".body", "body: Jeoul's expressions are of RE2, keepalived's of PCRE2")
	}
	if len(h.Headers) > 0 {
		w.Left(field+".headers", "headers: keepalived sends none but its own")
	}
	if h.HTTP2 {
		w.Approximate(field+".http2", "http2: keepalived asks by HTTP/1")
	}
	if h.WeightHeader != "" {
		w.Left(field+".weight_header", "weight_header: keepalived takes no weight from an answer to a check over HTTP")
	}
	return nil
}

// tls remarks on the parts of TLS that keepalived does not do.
func (w *writer) tls(field string, c lb.Check) {
	w.Carry(field+".tls.verify", field+".tls.server_name")
	if c.TLS.Verify {
		w.Approximate(field+".tls.verify", "tls.verify: keepalived verifies no certificate")
	}
	if name := c.TLS.ServerName; name != "" && c.HTTP.Host != "" && name != c.HTTP.Host {
		w.Approximate(field+".tls.server_name", "tls.server_name: keepalived sends the host as the server's name")
	}
}

// statuses writes the status codes that pass.
func statuses(list []lb.StatusRange) string {
	if len(list) == 0 {
		list = lb.DefaultStatus
	}
	words := make([]string, len(list))
	for i, r := range list {
		words[i] = r.String()
	}
	return strings.Join(words, " ")
}

func (w *writer) dns(field string, c lb.Check, b lb.Backend) error {
	if !plain(c.DNS.Name) {
		return fmt.Errorf("%q: %w", c.DNS.Name, errWords)
	}
	w.block("DNS_CHECK", func() {
		w.line("type %s", c.DNS.Type)
		w.line("name %s", quote(strings.TrimSuffix(c.DNS.Name, ".")))
		w.place(c, b)
		w.times(c, "connect_timeout")
	})
	w.Carry(field+".name", field+".record", field+".code", field+".tcp")
	if c.DNS.Code != lb.DefaultCheckCode {
		w.Approximate(field+".code", "code: keepalived wants an answer without an error")
	}
	if c.DNS.Answer != "" {
		w.Left(field+".answer", "answer: keepalived does not look into the records")
	}
	if c.DNS.TCP {
		w.Approximate(field+".tcp", "tcp: keepalived asks over UDP")
	}
	return nil
}

func (w *writer) udp(field string, c lb.Check, b lb.Backend) error {
	w.block("UDP_CHECK", func() {
		if len(c.UDP.Send) > 0 {
			w.line("payload %X", c.UDP.Send)
		}
		if len(c.UDP.Send) > 0 || len(c.UDP.Expect) > 0 {
			w.line("require_reply %X", c.UDP.Expect)
		}
		w.place(c, b)
		w.times(c, "connect_timeout")
	})
	w.Carry(field+".send", field+".expect")
	return nil
}

// exec writes MISC_CHECK. keepalived does not pass the backend in the program's environment.
func (w *writer) exec(field string, c lb.Check, _ lb.Backend) error {
	words := make([]string, len(c.Exec.Command))
	for i, word := range c.Exec.Command {
		if !plain(word) || strings.ContainsAny(word, " '") {
			return fmt.Errorf("%q: %w", word, errWords)
		}
		words[i] = word
	}
	words[0], w.scripts = path.Clean(words[0]), true
	w.block("MISC_CHECK", func() {
		w.line("misc_path \"%s\"", strings.Join(words, " "))
		w.times(c, "misc_timeout")
	})
	w.Carry(field + ".command")
	w.Approximate(field+".command",
		"command: keepalived gives the program no JEOUL_ADDRESS and JEOUL_PORT; have it take them as arguments, and add them at each real server")
	return nil
}

// plainMarks are the characters besides letters and digits that keepalived takes literally within quotation marks.
const plainMarks = " -_./:?=&%+,;()[]|^*"

// plain reports whether keepalived takes a text literally within quotation marks. keepalived has its own variables,
// escape sequences, comments and braces.
func plain(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune(plainMarks, r)
	})
}

// quote writes a plain text as one word.
func quote(text string) string {
	if strings.ContainsAny(text, " ;|()[]^*?&%,=") {
		return `"` + text + `"`
	}
	return text
}
