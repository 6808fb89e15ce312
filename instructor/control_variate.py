"""Answer to the transfer exercise of notebook 02: the slope of the regression line says how much of z to take off."""


def control_variate(x, z):
    centred = z - z.mean()
    c = (x * centred).sum() / centred.square().sum()
    return x.mean() - c * z.mean()
