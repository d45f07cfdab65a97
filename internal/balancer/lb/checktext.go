// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"strings"
)

// String describes the check's request, as in "http GET /healthz".
func (c Check) String() string {
	text := string(c.Type)
	switch {
	case c.HTTP != nil:
		text += " " + c.HTTP.Method + " " + c.HTTP.Path
	case c.DNS != nil:
		text += " " + c.DNS.Name + " " + c.DNS.Type
	case c.GRPC != nil && c.GRPC.Service != "":
		text += " " + c.GRPC.Service
	case c.Exec != nil && len(c.Exec.Command) > 0:
		text += " " + c.Exec.Command[0]
	}
	if c.TLS != nil && c.Type != CheckTLS {
		text += " over TLS"
	}
	if c.Port != 0 {
		text += fmt.Sprintf(" on port %d", c.Port)
	}
	return text
}

// Expected describes the answer that passes the check, as in "status 200-299".
func (c Check) Expected() string {
	switch c.Type {
	case CheckTCP:
		return "a connection"
	case CheckTLS:
		if c.TLS != nil && c.TLS.Verify {
			return "a handshake with a certificate that can be verified"
		}
		return "a handshake"
	case CheckHTTP:
		return c.HTTP.expected()
	case CheckDNS:
		if c.DNS.Answer != "" {
			return fmt.Sprintf("%s with %s", c.DNS.Code, c.DNS.Answer)
		}
		return c.DNS.Code
	case CheckUDP:
		switch {
		case len(c.UDP.Expect) > 0:
			return fmt.Sprintf("an answer that begins with %q", c.UDP.Expect)
		case len(c.UDP.Send) > 0:
			return "an answer"
		}
		return "no ICMP error"
	case CheckICMP:
		return "an echo reply"
	case CheckGRPC:
		return "SERVING"
	case CheckExec:
		return "exit code 0"
	case CheckAgent:
		return "up or ready"
	}
	return ""
}

// DefaultStatus are the status codes that pass where a check does not say.
var DefaultStatus = []StatusRange{{200, 399}}

func (h *HTTPCheck) expected() string {
	ranges := h.Status
	if len(ranges) == 0 {
		ranges = DefaultStatus
	}
	words := make([]string, len(ranges))
	for i, r := range ranges {
		words[i] = r.String()
	}
	text := "status " + strings.Join(words, ", ")
	if h.Body != "" {
		text += fmt.Sprintf(" and a body that matches %q", h.Body)
	}
	return text
}
