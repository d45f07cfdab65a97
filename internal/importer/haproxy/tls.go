// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"path"
	"slices"
	"strings"
)

const nameCertificates = "name each of its files under proxy.certificates"

// unlikeTLS are parameters of a bind that Jeoul has no key for, but proxy.global.
var unlikeTLS = []string{"ciphers", "ciphersuites", "curves", "ecdhe", "ssl-min-ver", "ssl-max-ver", "force-sslv3", "force-tlsv10", "force-tlsv11",
	"force-tlsv12", "force-tlsv13", "no-tlsv12", "no-tlsv13", "strict-sni", "allow-0rtt", "no-tls-tickets",
	"tls-ticket-keys", "prefer-client-ciphers", "crt-ignore-err", "ca-ignore-err", "generate-certificates", "ca-sign-file"}

// usualTLS are parameters that ask for what is so without them, by Jeoul's TLS 1.2 and newer.
var usualTLS = []string{"no-sslv3", "no-tlsv10", "no-tlsv11"}

// certificates are the files of a bind that ends TLS.
func (r *reader) certificates(l line) (files []string) {
	if !slices.Contains(l.words, "ssl") {
		return nil
	}
	for i, word := range l.words[:len(l.words)-1] {
		if word == "crt" {
			if file := based(r.crtBase, l.words[i+1]); absolute(file) && !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}

// based returns a path below a directory, unless it is absolute.
func based(dir, file string) string {
	if dir == "" || strings.HasPrefix(file, "/") || strings.HasPrefix(file, "@") {
		return file
	}
	return path.Join(dir, file)
}

// absolute says whether a path is that of a file that Jeoul takes.
func absolute(file string) bool {
	return strings.HasPrefix(file, "/") && !strings.HasSuffix(file, "/") && len(file) < 4096 && !strings.ContainsFunc(file, func(r rune) bool { return r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 })
}

// noHTTP2 says whether a bind names its protocols, and HTTP/2 is none of them.
func noHTTP2(l line) bool {
	i := slices.Index(l.words, "alpn")
	return i > 0 && i+1 < len(l.words) && !slices.Contains(strings.Split(l.words[i+1], ","), "h2")
}

// bindOfProxy says why clients that connect there cannot be served, "" if they can, and remarks on what differs.
func (r *reader) bindOfProxy(l line) string {
	var left []string
	for i, word := range l.words[2:] {
		value := ""
		if i+3 < len(l.words) {
			value = l.words[i+3]
		}
		switch {
		case word == "accept-netscaler-cip":
			return "clients come by a protocol that Jeoul does not take; it takes PROXY (accept_proxy)"
		case word == "verify" && value != "none":
			return "clients are asked for certificates, which Jeoul does not do; " + keep
		case slices.Contains(usualTLS, word), word == "ssl-min-ver" && value == "TLSv1.2":
		case word == "mss", slices.Contains(unlikeTLS, word):
			left = append(left, word)
		case word == "crt-list":
			r.Left(l.at, "a list of certificates; %s", nameCertificates)
		case word == "crt" && !absolute(based(r.crtBase, value)):
			r.Left(l.at, "%q is no file by its absolute path; %s", value, nameCertificates)
		}
	}
	if len(left) > 0 {
		r.Left(l.at, "of this bind's parameters no key is like: %s", strings.Join(left, ", "))
	}
	if slices.Contains(l.words, "ssl") && len(r.certificates(l)) == 0 {
		return "ends TLS without a certificate that could be carried over; " + nameCertificates
	}
	return ""
}
