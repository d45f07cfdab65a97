// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// renewEvery is how often the files of certificates are looked at: they are renewed some days before they expire, and a
// directory that is watched says nothing where a symbolic link leads elsewhere. Whether one has expired is looked at every
// judgeEvery.
const (
	renewEvery = 5 * time.Second
	judgeEvery = time.Minute
)

// digest is the hash of a file's content; zero: it could not be read.
type digest [sha256.Size]byte

// certificateFiles are those of a configuration's services, each once.
func certificateFiles(cfg *config.Config) []string {
	files := map[string]bool{}
	for _, s := range cfg.Services {
		if s.Proxy == nil {
			continue
		}
		for _, path := range s.Proxy.Certificates {
			files[path] = true
		}
		if s.Proxy.BackendCA != "" {
			files[s.Proxy.BackendCA] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
}

// readCertificates hashes the files of a configuration.
func (c *Controller) readCertificates(cfg *config.Config) map[string]digest {
	read := map[string]digest{}
	for _, path := range certificateFiles(cfg) {
		if data, err := c.opt.ReadFile(path); err == nil {
			read[path] = sha256.Sum256(data)
		} else {
			read[path] = digest{}
		}
	}
	return read
}

// armRenewal looks at the files again later, if there are any.
func (c *Controller) armRenewal(cfg *config.Config) {
	if len(certificateFiles(cfg)) > 0 {
		c.tasks.renew.In(renewEvery)
	} else {
		c.tasks.renew.Off()
	}
}

// judgeCertificates looks at what the files have, and notes for the status what is wrong with it.
func (c *Controller) judgeCertificates(cfg *config.Config) (problems, warnings yamlfile.Problems) {
	now := time.Now()
	problems, warnings = cfg.CheckCertificates(c.opt.ReadFile, now)
	var troubles []string
	for _, problem := range problems {
		troubles = append(troubles, problem.Error()+" (the one before serves on until the proxy is reloaded)")
	}
	for _, warning := range warnings {
		troubles = append(troubles, warning.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proxy.judged, c.proxy.troubles = now, troubles
	return problems, warnings
}

// renew has the engine take certificates whose files have changed. Those that it cannot use are logged once, and what it has
// goes on: a file may be half written.
func (c *Controller) renew() {
	cfg := c.view.cfg
	defer c.armRenewal(cfg)
	now := c.readCertificates(cfg)
	changed := slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(path string) bool { return now[path] == c.proxy.certificates[path] })
	if len(changed) == 0 && time.Since(c.proxy.judged) < judgeEvery {
		return
	}
	problems, warnings := c.judgeCertificates(cfg)
	if len(changed) == 0 {
		return
	}
	err := problems.Err()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), proxyBound)
		defer cancel()
		err = c.opt.Proxy.Renewed(ctx)
	}
	about := events.About{Kind: events.KindProxy}.Attr()
	if err != nil {
		if !maps.Equal(c.proxy.bad, now) {
			c.opt.Log.Warn("changed certificates are not taken, and those before serve on: "+oneLine(err), about)
		}
		c.proxy.bad = now
		return
	}
	c.proxy.certificates, c.proxy.bad = now, nil
	c.opt.Log.Info("the proxy has taken certificates that have changed: "+strings.Join(changed, ", "), about)
	for _, warning := range warnings {
		c.opt.Log.Warn(warning.Error(), about)
	}
}
