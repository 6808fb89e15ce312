"""The mathematics: one equation, one pure function. Imports torch and nothing else of the package.

Read in this order: ``masking`` (what counts), ``returns`` (what a step was worth), ``importance`` and ``objectives``
(how the policy learns from it), ``values`` (how the critic does), ``distributions`` and ``kl`` (how far apart two
policies are), then ``preferences``, ``groups``, ``trust_region`` and ``schedules``.
"""
