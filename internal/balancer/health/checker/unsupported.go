// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"crypto/x509"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Unsupported says of a check why it cannot be made on this host, and names the remedy; "" if it can.
func (c *Checker) Unsupported(check lb.Check) string {
	switch {
	case protocols[check.Type] == nil:
		return fmt.Sprintf("this version makes no checks of type %s; use another type", check.Type)
	case check.Via == lb.ViaVIP && c.dialer == nil:
		return fmt.Sprintf(
			"this version cannot send checks to the VIP; write via: %s, which asks the backend's own address, and does not notice that a backend lacks the VIP or the decapsulation of its mode", lb.ViaAddress)
	case check.Exec != nil:
		return unsupportedProgram(check.Exec.Command[0])
	case check.TLS != nil && check.TLS.CA != "":
		return unsupportedAuthorities(check.TLS.CA)
	}
	return ""
}

func unsupportedProgram(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Sprintf("the program cannot be run: %v; write the path of one that is there", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Sprintf(
			"%s cannot be run: it is no executable file; make it one (chmod +x), or write the path of another", path)
	}
	return ""
}

func unsupportedAuthorities(path string) string {
	text, err := os.ReadFile(path)
	switch {
	case err != nil:
		return fmt.Sprintf("the authorities' certificates cannot be read: %v", err)
	case !x509.NewCertPool().AppendCertsFromPEM(text):
		return fmt.Sprintf("%s holds no certificate; write the path of a file of them in PEM", path)
	}
	return ""
}
