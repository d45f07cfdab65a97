// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// The bounds of a proxy's values.
const (
	maxCertificates = 1000
	maxRoutes       = 1000
	// maxRouteNames bounds the hosts, and the paths, of a route.
	maxRouteNames = 100
	maxThreads    = 64
	maxCPUMaps    = 64
	maxRetries    = 100
	// maxSnippet bounds lines in the engine's own language, in bytes.
	maxSnippet      = 64 << 10
	minProxyTimeout = time.Millisecond
	maxProxyTimeout = 24 * time.Hour
)

// cookieName is a scalar with the name of a cookie (RFC 6265 section 4.1.1).
var cookieName = tokenOf("the name of a cookie", "SERVER")

// proxyHeader is a header field that a proxy sets, or removes where it has no value.
var proxyHeader = keytable.Scalar[lb.Header]{
	Parse: func(text string) (lb.Header, string) {
		name, value, ok := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		if !ok || !fieldName.MatchString(name) || strings.ContainsFunc(value, unicode.IsControl) ||
			len(text) > maxHeader {
			return lb.Header{}, yamlfile.Quote(text) +
				" is not a header field; write one such as \"X-Origin: jeoul\", or \"X-Powered-By:\" to remove one"
		}
		return lb.Header{Name: textproto.CanonicalMIMEHeaderKey(name), Value: value}, ""
	},
	Show: func(h lb.Header) string {
		if h.Value == "" {
			return h.Name + ":"
		}
		return h.Name + ": " + h.Value
	},
	Kind:   "`\"NAME: VALUE\"`",
	Schema: map[string]any{"type": "string", "pattern": "^[^:]+:", "maxLength": maxHeader},
}

// hostPattern is a name of a Host header, or all names below one.
var hostPattern = regexp.MustCompile(
	`^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$|^\[[0-9a-f:.]+\]$`)

// routeHost is a host that requests are routed by.
var routeHost = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		name := strings.TrimSuffix(strings.ToLower(text), ".")
		if !hostPattern.MatchString(name) || len(name) > maxHost {
			return "", yamlfile.Quote(text) +
				" is not a host, without scheme and port; write one such as www.example.com, or *.example.com for all below it"
		}
		return name, ""
	},
	Show:   asIs,
	Kind:   "a host, or `*.` and a domain",
	Schema: map[string]any{"type": "string", "minLength": 1, "maxLength": maxHost},
}

// routePath is the beginning of a path that requests are routed by.
var routePath = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		switch {
		case !strings.HasPrefix(text, "/") || len(text) > maxPath || strings.ContainsFunc(text, notInPath):
			return "", yamlfile.Quote(text) + " is not the beginning of a path; write one such as /api, without query"
		case len(text) > 1 && strings.HasSuffix(text, "/"):
			return "", fmt.Sprintf("%s ends with a slash, and a path is compared up to one: write %s",
				yamlfile.Quote(text), strings.TrimRight(text, "/"))
		}
		return text, ""
	},
	Show:   asIs,
	Kind:   "a path from `/` on",
	Schema: map[string]any{"type": "string", "pattern": "^/", "maxLength": maxPath},
}

func notInPath(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`?#"\`, r) }

// snippet is lines in the engine's own language, passed through.
var snippet = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		text = strings.TrimRight(text, "\n ")
		switch {
		case len(text) > maxSnippet:
			return "", fmt.Sprintf("%d bytes are more than the %d that can stand here", len(text), maxSnippet)
		case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
			return "", "has a control character; write lines of HAProxy's configuration"
		}
		return text, ""
	},
	Show:   asIs,
	Kind:   "lines of HAProxy's configuration",
	Schema: map[string]any{"type": "string", "maxLength": maxSnippet},
}

// accountName is a user or a group of the host, by name or number.
var accountName = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		if !account.MatchString(text) {
			return "", yamlfile.Quote(text) +
				" cannot be the name of an account of this host; write one such as haproxy"
		}
		return text, ""
	},
	Show:   asIs,
	Kind:   "the name of an account of the host",
	Schema: map[string]any{"type": []string{"string", "integer"}, "minLength": 1, "maxLength": 32},
}

var account = regexp.MustCompile(`^[a-z0-9_][a-z0-9_-]{0,30}\$?$`)

// retries are further tries of a connection to a backend.
var retries = keytable.Number[uint8](0, maxRetries)

// optionalRetries keeps 0 and nothing written apart.
var optionalRetries = keytable.Computed(
	func(p *lb.Proxy) (uint8, bool) {
		if p.Retries == nil {
			return 0, false
		}
		return *p.Retries, true
	},
	func(p *lb.Proxy, n uint8) { p.Retries = &n }, retries, 0, "HAProxy's, "+strconv.Itoa(3))

// proxyTimeout is an optional time of a proxied connection.
func proxyTimeout(at func(*lb.ProxyTimeouts) *time.Duration, fallback string) keytable.Value[lb.ProxyTimeouts] {
	return keytable.Optional(at, keytable.Duration(minProxyTimeout, maxProxyTimeout), fallback)
}

// enabledUnless is the value of a switch that is on by default and stored as its opposite.
func enabledUnless[T any](off func(*T) *bool) keytable.Value[T] {
	return keytable.Computed(func(t *T) (bool, bool) { return !*off(t), *off(t) },
		func(t *T, on bool) { *off(t) = !on }, keytable.Bool, true, "`true`")
}
