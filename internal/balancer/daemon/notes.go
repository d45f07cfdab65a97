// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"io/fs"
	"os"

	"github.com/jeoul/jeoul/internal/host/durable"
)

// noted is a file that keeps the overlays of operations, the verdicts of health checks, or the ejected backends.
type noted struct{ content *durable.Content }

// whatNoted describes the content of the files, for a fault.
var whatNoted = map[string]string{
	kindOperations: "the drains and weights of backends",
	kindHealth:     "the verdicts of health checks",
	kindEjections:  "the ejected backends",
	kindDiscovered: "the discovered backends",
	kindDrained:    "the drain of this balancer",
}

// noted returns the file of a kind.
func (i instance) noted(kind string) noted {
	return noted{i.files.Content(whatNoted[kind], i.file(kind), kind, 0o600)}
}

func (n noted) Load() ([]byte, error) {
	data, err := n.content.Load(os.ReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save puts other content into the file, whole or not at all. Where there is none, no file is left. The daemon
// reports an error that wraps durable.ErrNotWritten in its status, and retries the write.
func (n noted) Save(data []byte) error {
	if len(data) == 0 {
		data = nil
	}
	return n.content.Save(data)
}
