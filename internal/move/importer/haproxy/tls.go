// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"path"
	"slices"
	"strings"
)

const nameCertificates = "name each of its files under proxy.certificates"

// certificates returns the certificate files of a bind line that terminates TLS.
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

// based returns a path below a directory, or an absolute path unchanged.
func based(dir, file string) string {
	if dir == "" || strings.HasPrefix(file, "/") || strings.HasPrefix(file, "@") {
		return file
	}
	return path.Join(dir, file)
}

// absolute reports whether a path is an absolute path of a file that Jeoul accepts.
func absolute(file string) bool {
	return strings.HasPrefix(file, "/") && !strings.HasSuffix(file, "/") && len(file) < 4096 &&
		!strings.ContainsFunc(file, func(r rune) bool { return r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 })
}

// noHTTP2 reports whether a bind line lists ALPN protocols without HTTP/2.
func noHTTP2(l line) bool {
	i := slices.Index(l.words, "alpn")
	return i > 0 && i+1 < len(l.words) && !slices.Contains(strings.Split(l.words[i+1], ","), "h2")
}
