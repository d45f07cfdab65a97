// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// authority signs the certificates of a cluster.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// newAuthority makes an authority; its files are in dir.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	template := certificateFor(pkix.Name{CommonName: "test cluster"})
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, os.WriteFile(a.file(), a.pem, 0o600)
}

// file is the path of the authority's certificate.
func (a *authority) file() string { return filepath.Join(a.dir, "ca.pem") }

func certificateFor(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: subject,
		// Tests may set a clock back.
		NotBefore: now.Add(-1000 * time.Hour), NotAfter: now.Add(1000 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// issue makes a certificate and its key, as PEM.
func (a *authority) issue(template *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), nil
}

// issueServer writes the certificate of a server with addresses, and its key.
func (a *authority) issueServer(name string, addresses ...netip.Addr) (certificateFile, keyFile string, err error) {
	template := certificateFor(pkix.Name{CommonName: name})
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default.svc"}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
	}
	certificate, key, err := a.issue(template)
	if err != nil {
		return "", "", err
	}
	certificateFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+"-key.pem")
	if err := os.WriteFile(certificateFile, certificate, 0o600); err != nil {
		return "", "", err
	}
	return certificateFile, keyFile, os.WriteFile(keyFile, key, 0o600)
}

// WriteKubeconfig makes a user of the cluster, whose rights follow from the name and the groups by RBAC, and writes
// USER.kubeconfig for it into the directory of the laboratory. It returns the file's path.
func (c *Cluster) WriteKubeconfig(user string, groups ...string) (path string, err error) {
	certificate, key, err := c.authority.issue(certificateFor(pkix.Name{CommonName: user, Organization: groups}))
	if err != nil {
		return "", fmt.Errorf("make a certificate for %s: %w", user, err)
	}
	config := api.NewConfig()
	config.Clusters["test"] = &api.Cluster{Server: c.Server(), CertificateAuthorityData: c.authority.pem}
	config.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: user}
	config.CurrentContext = "test"
	path = filepath.Join(c.Lab.Dir, filepath.Base(user)+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

func loadKubeconfig(path string) (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", path)
}
